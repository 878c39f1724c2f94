// Package fuzz lets a fuzzer drive the whole engine beside its twin. The targets of
// the single decoders are beside the decoders; make fuzz runs them all.
package fuzz
