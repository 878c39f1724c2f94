//go:build !invariants && !race

// Package invariants switches on checks that are too dear for production: under
// the build tag "invariants" and with the race detector.
package invariants

// Enabled says whether the checks are compiled in.
const Enabled = false
