// A bootstrap, taken apart by parsers that have nothing to do with the server.
import { Dicer } from "@fastify/busboy"
import { parseMultipart } from "@remix-run/multipart-parser"

export interface Part {
  /** Names in lower case. */
  headers: Record<string, string>
  body: Uint8Array
}

/** Takes a body apart, or rejects one that is not whole. */
export type Parse = (body: Uint8Array, boundary: string) => Promise<Array<Part>>

export const parsers: Record<string, Parse> = {
  "@remix-run/multipart-parser": async (body, boundary) =>
    [...parseMultipart(body, { boundary, maxFileSize: 1 << 30, maxTotalSize: 1 << 30, maxParts: 1 << 20 })].map((part) => ({
      headers: Object.fromEntries(Object.entries(part.headers).map(([name, value]) => [name.toLowerCase(), value!])),
      body: part.bytes,
    })),

  "@fastify/busboy": (body, boundary) =>
    new Promise((resolve, reject) => {
      const parts: Array<Part> = []
      const dicer = new Dicer({ boundary })
      dicer.on(`part`, (stream) => {
        const chunks: Array<Buffer> = []
        const part: Part = { headers: {}, body: new Uint8Array() }
        parts.push(part)
        stream.on(`header`, (header) => {
          for (const [name, values] of Object.entries(header)) part.headers[name] = (values as Array<string>).join(`, `)
        })
        stream.on(`data`, (chunk) => chunks.push(chunk as Buffer))
        stream.on(`end`, () => (part.body = Buffer.concat(chunks)))
        stream.on(`error`, reject)
      })
      dicer.on(`error`, reject)
      dicer.on(`finish`, () => setImmediate(() => resolve(parts)))
      // In pieces of a size that falls into every place of a delimiter sooner or later.
      for (let at = 0; at < body.length; at += 1021) dicer.write(Buffer.from(body.subarray(at, at + 1021)))
      dicer.end()
    }),
}

/** The boundary that an answer names. */
export function boundaryOf(answer: Response): string {
  const found = /^multipart\/mixed; boundary=([0-9A-Za-z'()+_,./:=?-]{1,70})$/.exec(answer.headers.get(`Content-Type`)!)
  if (!found) throw new Error(`not the type of a bootstrap: ${answer.headers.get(`Content-Type`)}`)
  return found[1]!
}
