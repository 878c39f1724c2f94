//go:build e2e

package e2e

import "testing"

// TestClient runs the tests of test/client, which start servers of their own.
func TestClient(t *testing.T) { ownVitest(t, "client") }

// TestApplications runs those of test/app.
func TestApplications(t *testing.T) { ownVitest(t, "app") }

func ownVitest(t *testing.T, dir string) {
	t.Helper()
	r := vitest(t, dir, "E2E_BINARY="+binary)
	if r.Passed == 0 || r.Skipped > 0 {
		t.Errorf("%d passed, %d failed, %d skipped", r.Passed, r.Failed, r.Skipped)
	}
}
