// Plain requests, for answers whose headers matter.
import { expect } from "vitest"

export interface Parts {
  type?: string
  body?: BodyInit
  headers?: Record<string, string>
}

function send(method: string, url: string, { type, body, headers }: Parts): Promise<Response> {
  return fetch(url, { method, body, headers: { ...(type ? { "Content-Type": type } : {}), ...headers } })
}

export const put = (url: string, parts: Parts = {}): Promise<Response> => send(`PUT`, url, parts)
export const post = (url: string, body?: BodyInit, type = `text/plain`, headers: Record<string, string> = {}): Promise<Response> =>
  send(`POST`, url, { body, type, headers })
export const head = (url: string): Promise<Response> => fetch(url, { method: `HEAD` })
export const del = (url: string): Promise<Response> => fetch(url, { method: `DELETE` })

/** The headers of an idempotent producer. */
export const producer = (id: string, epoch: number, seq: number): Record<string, string> => ({
  "Producer-Id": id,
  "Producer-Epoch": String(epoch),
  "Producer-Seq": String(seq),
})

/** Makes a stream of a type. */
export async function create(url: string, type = `text/plain`, body?: BodyInit): Promise<void> {
  expect((await put(url, { type, body })).status).toBe(201)
}

/** Compares some headers of an answer; null means that it must not be there. */
export function expectHeaders(response: Response, want: Record<string, string | null>): void {
  const got = Object.fromEntries(Object.keys(want).map((name) => [name, response.headers.get(name)]))
  expect(got).toEqual(want)
}

/** An offset as the server writes it. */
export const offset = (n: number): string => String(n).padStart(20, `0`)
