package protocol

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/errors.md has a line for every code, in the order of the table, and none
// for any other.
func TestErrorsPage(t *testing.T) {
	page, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "## Problem codes\n")
	if !ok {
		t.Fatal("the page has no section «Problem codes»")
	}
	var got, want []string
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "| `") || strings.HasPrefix(line, "| <a") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	for _, c := range Codes() {
		retry := "–"
		if c.Retry > 0 {
			retry = fmt.Sprintf("%d s", c.Retry)
		}
		want = append(want, fmt.Sprintf("| <a id=%q></a>`%s` | %d | %s | %s | %s |", c.Code, c.Code, c.Status, c.Title, c.Outcome, retry))
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("missing: %s", want[i])
		case i >= len(want):
			t.Errorf("there is no such code: %s", got[i])
		case got[i] != want[i]:
			t.Errorf("the page says %s\nthe table says %s", got[i], want[i])
		}
	}
}

// What an answer says about a write follows from its status, but for those of
// ours that say it by their code (api §5).
func TestOutcomes(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Codes() {
		if seen[c.Code] {
			t.Errorf("%s is there twice", c.Code)
		}
		seen[c.Code] = true
		want := refused
		switch {
		case c.Code == "closed_duplicate":
			want = repeat
		case c.Status == 408, c.Status >= 500 && c.Status != 503 && c.Status != 507:
			want = unknown
		}
		if c.Outcome != want && c.Outcome != noWrite {
			t.Errorf("%s (%d): outcome %q, want %q", c.Code, c.Status, c.Outcome, want)
		}
		if needs := c.Status == 429 || c.Status == 503 || c.Status == 507; needs != (c.Retry > 0) {
			t.Errorf("%s (%d): Retry-After %d", c.Code, c.Status, c.Retry)
		}
	}
	for o, r := range refusals {
		if r.code != "" && !seen[r.code] {
			t.Errorf("outcome %d has the unknown code %s", o, r.code)
		}
	}
}

func TestProblemJSON(t *testing.T) {
	p := NewProblem("invalid_json", "A \"quoted\" é\n\x00 \\ sentence.")
	p.Field, p.Position, p.Limit = "body", 0, 7
	const want = `{"type":"https://github.com/snakream/snakream/blob/main/docs/errors.md#invalid_json","title":"The body is not valid JSON","status":400,` +
		`"detail":"A \"quoted\" é\u000A\u0000 \\ sentence.","code":"invalid_json","field":"body","position":0,"limit":7}`
	if got := string(p.AppendJSON(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if p := NewProblem("no such code", ""); p.Status != 500 || p.Code != "internal" || p.Detail == "" {
		t.Errorf("an unknown code became %+v", p)
	}
	if got := p.Error(); !strings.HasPrefix(got, "invalid_json: ") {
		t.Errorf("as an error it says %q", got)
	}
}
