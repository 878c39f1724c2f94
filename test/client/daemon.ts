// The binary under test, on ports and a data directory of its own. The ports stay the same over
// restarts, so that clients can resume.
import { spawn, type ChildProcess } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll } from "vitest"

const binary = process.env.E2E_BINARY
if (!binary) throw new Error("E2E_BINARY is not set: name the binary, or run test/e2e")

// Settings of the developer's own are not for these tests.
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith(`SNAKREAM_`)))

const readyTimeoutMs = 60_000

export class Daemon {
  readonly #dir = mkdtempSync(join(tmpdir(), "snakream-client-"))
  readonly #flags: Array<string>
  #port = 0
  #adminPort = 0
  #process?: ChildProcess
  #said = ""
  #streams = 0

  constructor(...flags: Array<string>) {
    this.#flags = flags
  }

  get port(): number {
    return this.#port
  }

  /** The URL of a stream. */
  url(name: string): string {
    return `http://127.0.0.1:${this.#port}/v1/stream/${name}`
  }

  /** The URL of a stream that no other test uses. */
  fresh(): string {
    return this.url(`s${++this.#streams}`)
  }

  async start(): Promise<void> {
    this.#port ||= await freePort()
    this.#adminPort ||= await freePort()
    const child = spawn(
      binary!,
      [
        `serve`,
        `--listen=127.0.0.1:${this.#port}`,
        `--admin-listen=127.0.0.1:${this.#adminPort}`,
        `--data-dir=${join(this.#dir, "data")}`,
        ...this.#flags,
      ],
      { env, stdio: [`ignore`, `pipe`, `pipe`] }
    )
    for (const out of [child.stdout, child.stderr]) out.on(`data`, (b) => (this.#said = (this.#said + b).slice(-4000)))
    this.#process = child
    const deadline = Date.now() + readyTimeoutMs
    while (!(await this.#ready())) {
      if (child.exitCode !== null || Date.now() > deadline) throw new Error(`the server is not ready:\n${this.#said}`)
      await new Promise((again) => setTimeout(again, 10))
    }
  }

  async #ready(): Promise<boolean> {
    try {
      return (await fetch(`http://127.0.0.1:${this.#adminPort}/readyz`)).ok
    } catch {
      return false
    }
  }

  /** Ends the process by a signal and returns its exit code, which is null for SIGKILL. */
  async stop(signal: `SIGTERM` | `SIGKILL` = `SIGTERM`): Promise<number | null> {
    const child = this.#process
    if (!child || child.exitCode !== null || child.signalCode !== null) return child?.exitCode ?? null
    const ended = new Promise<number | null>((end) => child.once(`exit`, (code) => end(code)))
    child.kill(signal)
    return ended
  }

  async restart(signal?: `SIGTERM` | `SIGKILL`): Promise<void> {
    await this.stop(signal)
    await this.start()
  }

  async remove(): Promise<void> {
    await this.stop(`SIGKILL`)
    rmSync(this.#dir, { recursive: true, force: true })
  }
}

/** One daemon for all tests of a file. */
export function daemonForFile(...flags: Array<string>): Daemon {
  const daemon = new Daemon(...flags)
  beforeAll(() => daemon.start(), readyTimeoutMs)
  afterAll(() => daemon.remove(), readyTimeoutMs)
  return daemon
}

// Below the range from which the kernel takes ports for outgoing connections, so that none of
// those takes the server's port while it is down.
async function freePort(): Promise<number> {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000)
    const free = await new Promise<boolean>((answer) => {
      const server = createServer()
      server.once(`error`, () => answer(false))
      server.listen(port, `127.0.0.1`, () => server.close(() => answer(true)))
    })
    if (free) return port
  }
}
