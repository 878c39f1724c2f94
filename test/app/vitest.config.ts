import { defineConfig } from "vitest/config"

// The helpers in ../client import vitest and the client, too: they get the ones of this package.
export default defineConfig({ resolve: { dedupe: [`vitest`, `@durable-streams/client`] } })
