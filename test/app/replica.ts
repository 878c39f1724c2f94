// A collaborative document: a Yjs document whose updates are the messages of a stream, and whose
// state is its snapshot. This is what an application would have, errors and all.
import { DurableStream, FetchError, stream } from "@durable-streams/client"
import * as Y from "yjs"
import { kind, parseEvents, values, type RawEvent } from "../client/raw"
import { boundaryOf, type Parse } from "./multipart"

const octets = `application/octet-stream`

/** Where an update came from: the stream, and so not to be sent there. */
const remote = Symbol(`remote`)

/** Appends may be joined on their way to a reader, so each update says how long it is. */
function frame(update: Uint8Array): Uint8Array {
  const framed = Buffer.alloc(4 + update.length)
  framed.writeUInt32BE(update.length)
  framed.set(update, 4)
  return framed
}

/** What a retry by hand waits between two tries. */
const again = (): Promise<void> => new Promise((go) => setTimeout(go, 20))

export class Replica {
  readonly doc = new Y.Doc()
  /** Up to where the document holds what is in the stream. */
  offset = ``
  /** How many snapshots it has published. */
  published = 0
  #handle: DurableStream
  #toSend: Array<Uint8Array> = []
  #stop = new AbortController()
  #following?: Promise<void>
  #moved: Array<() => void> = []
  #failure?: unknown

  constructor(readonly url: string) {
    this.#handle = new DurableStream({ url, contentType: octets, batching: false })
    this.doc.on(`update`, (update: Uint8Array, origin: unknown) => {
      if (origin !== remote) this.#toSend.push(update)
    })
  }

  /** Makes a change and appends it. */
  async edit(change: (doc: Y.Doc) => void): Promise<void> {
    this.doc.transact(() => change(this.doc))
    for (const update of this.#toSend.splice(0)) await this.#handle.append(frame(update))
  }

  /** Publishes the state as the snapshot of all up to its offset, which trims that. */
  async publish(): Promise<void> {
    // Own changes that are still on their way are in the state, too: to apply them again changes nothing.
    const [offset, body] = [this.offset, Y.encodeStateAsUpdate(this.doc)]
    const answer = await fetch(`${this.url}/snapshot/${offset}`, { method: `PUT`, body, headers: { "Content-Type": octets } })
    if (answer.ok) {
      this.published++
      return
    }
    const problem = await answer.json()
    const outdone = [`snapshot_stale`, `snapshot_conflict`, `snapshot_below_earliest`].includes(problem.code)
    if (!outdone) throw new Error(`publishing at ${offset}: ${JSON.stringify(problem)}`)
  }

  /** Begins with the snapshot and what is behind it, in one answer. */
  async bootstrap(parse: Parse): Promise<void> {
    const answer = await fetch(`${this.url}/bootstrap`)
    if (!answer.ok) throw new Error(`bootstrap: ${answer.status} ${await answer.text()}`)
    const [snapshot, ...messages] = await parse(new Uint8Array(await answer.arrayBuffer()), boundaryOf(answer))
    if (snapshot!.body.length > 0) Y.applyUpdate(this.doc, snapshot!.body, remote)
    for (const { body } of messages) this.#apply(body, `a part`)
    this.#reached(answer.headers.get(`Stream-Next-Offset`)!)
  }

  /** Follows by the official client, from its offset on; begins again where that has been trimmed. */
  follow(live: `sse` | `long-poll`, parse: Parse): void {
    this.#keep(async () => {
      try {
        const res = await stream({ url: this.url, live, offset: this.offset, signal: this.#stop.signal })
        res.subscribeBytes((chunk) => {
          this.#apply(chunk.data, `a chunk`)
          this.#reached(chunk.offset)
        })
        await res.closed
      } catch (err) {
        if (!(err instanceof FetchError && err.status === 410)) throw err
        await this.bootstrap(parse)
      }
    })
  }

  /** Follows by the events of a bootstrap, which begin with the snapshot. */
  followBootstrap(): void {
    this.#keep(async () => {
      const answer = await fetch(`${this.url}/bootstrap?live=sse`, { signal: this.#stop.signal })
      if (!answer.ok) throw new Error(`bootstrap: ${answer.status} ${await answer.text()}`)
      this.offset = `` // the snapshot may be older than what this document has had
      let text = ``
      for await (const piece of answer.body!.pipeThrough(new TextDecoderStream())) {
        text += piece
        const whole = text.lastIndexOf(`\n\n`) + 2
        if (whole < 2) continue
        for (const event of parseEvents(text.slice(0, whole))) this.#take(event)
        text = text.slice(whole)
      }
    })
  }

  #take(event: RawEvent): void {
    const bytes = (): Uint8Array => Buffer.from(values(event, `data`).join(``), `base64`)
    switch (kind(event)) {
      case `snapshot`:
        Y.applyUpdate(this.doc, bytes(), remote)
        break
      case `data`:
        this.#apply(bytes(), `an event`)
        break
      case `control`:
        this.#reached(values(event, `id`)[0]!)
        break
      case `end`:
        break // the next bootstrap begins where there is something to begin with
      default:
        throw new Error(`an event ${kind(event)}: ${values(event, `data`)}`)
    }
  }

  /** Does something again and again until close, over everything that the network does to it. */
  #keep(follow: () => Promise<void>): void {
    this.#following = (async () => {
      while (!this.#stop.signal.aborted) {
        try {
          await follow()
        } catch (err) {
          if (this.#stop.signal.aborted) return
          const down = err instanceof TypeError || (err instanceof FetchError && err.status >= 500) || (err as Error).name === `AbortError`
          if (!down) {
            this.#failure = err
            this.#wake()
            return
          }
          await again()
        }
      }
    })()
  }

  #apply(bytes: Uint8Array, of: string): void {
    const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
    for (let at = 0; at < view.length; ) {
      const end = at + 4 + view.readUInt32BE(at)
      if (end > view.length) throw new Error(`${of} ends in the middle of an update`)
      Y.applyUpdate(this.doc, view.subarray(at + 4, end), remote)
      at = end
    }
  }

  #reached(offset: string): void {
    if (offset < this.offset) throw new Error(`back from ${this.offset} to ${offset}`)
    this.offset = offset
    this.#wake()
  }

  #wake(): void {
    for (const wake of this.#moved.splice(0)) wake()
  }

  /** Waits until the document holds the stream up to an offset. */
  async until(offset: string): Promise<void> {
    while (this.offset < offset) {
      if (this.#failure) throw this.#failure
      await new Promise<void>((wake) => this.#moved.push(wake))
    }
  }

  async close(): Promise<void> {
    this.#stop.abort()
    await this.#following
    this.doc.destroy()
  }
}

/** The tail of a stream. */
export async function tail(url: string): Promise<string> {
  return (await fetch(url, { method: `HEAD` })).headers.get(`Stream-Next-Offset`)!
}
