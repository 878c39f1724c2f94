// Reading what a server really sends: the client library hides the details that these tests are about.
import { connect, type Socket } from "node:net"

/** One event of an event stream; field values keep what follows the colon. */
export interface RawEvent {
  fields: Array<[name: string, value: string]>
}

/** A live read over a bare socket. */
export class RawStream {
  readonly #socket: Socket
  /** What each read from the socket returned, the head in front. */
  readonly pieces: Array<string> = []
  ended = false
  #changed: Array<() => void> = []

  constructor(port: number, target: string, headers: Record<string, string> = {}) {
    this.#socket = connect(port, `127.0.0.1`)
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
    this.#socket.write(`GET ${target} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n${lines.join(``)}\r\n`)
    this.#socket.on(`data`, (b) => this.#note(() => this.pieces.push(b.toString(`utf8`))))
    this.#socket.on(`error`, () => this.#note(() => (this.ended = true)))
    this.#socket.on(`close`, () => this.#note(() => (this.ended = true)))
  }

  #note(change: () => void): void {
    change()
    for (const wake of this.#changed.splice(0)) wake()
  }

  get text(): string {
    return this.pieces.join(``)
  }

  get head(): string {
    return this.text.split(`\r\n\r\n`, 1)[0]!
  }

  /** The body with the framing of chunks taken off. */
  get body(): string {
    let rest = this.text.slice(this.head.length + 4)
    let body = ``
    for (;;) {
      const line = rest.indexOf(`\r\n`)
      if (line < 0) return body
      const size = parseInt(rest.slice(0, line), 16)
      // Sizes count bytes; go through them, since the text may hold longer characters.
      const bytes = Buffer.from(rest.slice(line + 2), `utf8`)
      if (!size || bytes.length < size) return body
      body += bytes.subarray(0, size).toString(`utf8`)
      rest = bytes.subarray(size + 2).toString(`utf8`)
    }
  }

  /** Whether the last chunk has come. */
  get complete(): boolean {
    return this.text.endsWith(`\r\n0\r\n\r\n`)
  }

  /** The whole events so far; comments are not events. */
  get events(): Array<RawEvent> {
    return parseEvents(this.body)
  }

  /** Waits until something holds; vitest's own limit ends a wait in vain. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      if (this.ended) throw new Error(`the server ended the connection: ${this.text}`)
      await new Promise<void>((wake) => this.#changed.push(wake))
    }
  }

  close(): void {
    this.#socket.destroy()
  }
}

export function parseEvents(body: string): Array<RawEvent> {
  const blocks = body.split(`\n\n`)
  blocks.pop() // unfinished, or empty
  return blocks
    .map((block) => ({
      fields: block
        .split(`\n`)
        .filter((line) => !line.startsWith(`:`))
        .map((line): [string, string] => {
          const colon = line.indexOf(`:`)
          return [line.slice(0, colon), line.slice(colon + 1)]
        }),
    }))
    .filter((event) => event.fields.length > 0)
}

/** A field's values without the one space that the event stream format lets go. */
export function values(event: RawEvent, name: string): Array<string> {
  return event.fields.filter(([n]) => n === name).map(([, v]) => (v.startsWith(` `) ? v.slice(1) : v))
}

export const kind = (event: RawEvent): string => values(event, `event`)[0]!
export const data = (event: RawEvent): string => values(event, `data`).join(`\n`)
export const control = (event: RawEvent): Record<string, unknown> => JSON.parse(data(event))
