//go:build e2e

package trace

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// history is a trace from the making of the directory on, and what follows from it
// about where each marker was.
type history struct {
	events []event
	logs   map[string][]*event // marker → the writes of its record to the log
	inLog  map[string][]string // file of the log → the markers in it
	inSeg  map[string][]string // base name of a segment → the markers in it
	homes  map[string][]string // marker → base names of segments
}

func newHistory(events []event) *history {
	h := &history{
		events: events,
		logs:   map[string][]*event{}, inLog: map[string][]string{},
		inSeg: map[string][]string{}, homes: map[string][]string{},
	}
	segments := map[string][]byte{}
	for i := range events {
		e := &events[i]
		switch {
		case e.call != "pwrite64":
		case isLog(e.path):
			for _, m := range markersIn(e.data) {
				h.logs[m] = append(h.logs[m], e)
				h.inLog[e.path] = append(h.inLog[e.path], m)
			}
		case path.Dir(e.path) == tmpDir: // a marker may lie in two writes
			b := segments[path.Base(e.path)]
			if grow := e.off + int64(len(e.data)) - int64(len(b)); grow > 0 {
				b = append(b, make([]byte, grow)...)
			}
			copy(b[e.off:], e.data)
			segments[path.Base(e.path)] = b
		}
	}
	for name, b := range segments {
		h.inSeg[name] = markersIn(b)
		for _, m := range h.inSeg[name] {
			h.homes[m] = append(h.homes[m], name)
		}
	}
	return h
}

// The kinds of change. Each begins with one call.

func logBegun(e *event) bool { return e.call == "rename" && isLog(e.to) }

func logLeft(e *event) bool { return isLog(e.path) && (e.call == "rename" || e.call == "unlinkat") }

func segmentMade(e *event) bool { return e.call == "rename" && path.Dir(e.to) == segmentDir }

func segmentGone(e *event) bool { return e.call == "unlinkat" && path.Dir(e.path) == segmentDir }

func (h *history) count(is func(*event) bool) (n int) {
	for i := range h.events {
		if is(&h.events[i]) {
			n++
		}
	}
	return n
}

// fault is a broken rule and where to look.
type fault struct {
	why string
	at  []int
}

func (h *history) check(t *testing.T, f *fault) {
	t.Helper()
	if f != nil {
		t.Errorf("%s:\n%s", f.why, around(h.events, f.at...))
	}
}

func broken(at []int, format string, a ...any) *fault {
	return &fault{fmt.Sprintf(format, a...), at}
}

// first returns the first event that begins after a position and satisfies ok.
func (h *history) first(after int, ok func(event) bool) *event { return find(h.events, after, ok) }

// answered checks an append: its record is written and synced before its answer.
func (h *history) answered(a sent) *fault {
	answer := h.first(a.from, func(e event) bool { return e.output() && e.path == a.client })
	if answer == nil {
		return broken([]int{a.from}, "%s: there is no answer in the trace", a.marker)
	}
	if !bytes.HasPrefix(answer.data, []byte("HTTP/1.1 204 ")) {
		return broken([]int{answer.begin}, "%s: the first that the client was sent is not its answer", a.marker)
	}
	writes := h.logs[a.marker]
	if len(writes) != 1 {
		return broken([]int{answer.begin}, "%s: %d writes to the log", a.marker, len(writes))
	}
	if err := syncedBefore(h.events, *writes[0], answer.begin); err != nil {
		return broken([]int{writes[0].begin, answer.begin}, "%s: answered although %v", a.marker, err)
	}
	return nil
}

// renamed checks what holds for every rename: all that was done to the file under its
// old name is synced before, and the directory after.
func (h *history) renamed(r *event) *fault {
	for _, e := range h.lifetime(r.path, r.begin) {
		if e.changes() {
			if err := syncedBefore(h.events, *e, r.begin); err != nil {
				return broken([]int{e.begin, r.begin}, "%s got the name %s although %v", r.path, r.to, err)
			}
		}
	}
	if err := namedBefore(h.events, *r, r.to, h.events[len(h.events)-1].begin+1); err != nil {
		return broken([]int{r.begin}, "%v", err)
	}
	return nil
}

// lifetime returns the events on a name before a position, back to the one by which
// the name came to be.
func (h *history) lifetime(name string, before int) []*event {
	var all []*event
	for i := range h.events {
		e := &h.events[i]
		if e.begin >= before {
			break
		}
		if e.to == name || e.call == "create" && e.path == name {
			all = all[:0]
		}
		if e.path == name || e.to == name {
			all = append(all, e)
		}
	}
	return all
}

// begun checks a new file of the log: under a spare name it gets its header; then comes
// the rename, then the sync of the directory, and only then the first batch.
func (h *history) begun(r *event) *fault {
	if path.Dir(r.path) != logDir || path.Ext(r.path) != ".spare" {
		return broken([]int{r.begin}, "%s was not under a spare name before", r.to)
	}
	if !h.hasHeader(r, "SNKRWAL\n") {
		return broken([]int{r.begin}, "%s got the name %s without a header", r.path, r.to)
	}
	batch := h.first(r.begin, func(e event) bool { return e.call == "pwrite64" && e.path == r.to })
	if batch == nil {
		return nil // prepared and not used
	}
	if err := namedBefore(h.events, *r, r.to, batch.begin); err != nil {
		return broken([]int{r.begin, batch.begin}, "the first batch was written to %s although %v", r.to, err)
	}
	return nil
}

// hasHeader reports whether a file that gets another name was given its header under
// the old one.
func (h *history) hasHeader(r *event, magic string) bool {
	return slices.ContainsFunc(h.lifetime(r.path, r.begin), func(e *event) bool {
		return e.call == "pwrite64" && e.off == 0 && bytes.HasPrefix(e.data, []byte(magic))
	})
}

// left checks a file's leaving the log: all that was acknowledged in it is in segments
// that the manifest durably names; and its bytes don't change before it has durably
// lost its name.
func (h *history) left(e *event) *fault {
	for _, m := range h.inLog[e.path] {
		if f := h.housed(m, "", e); f != nil {
			return f
		}
	}
	after := h.first(e.begin, func(w event) bool { return w.call == "pwrite64" && w.path == e.path })
	if after != nil {
		return broken([]int{e.begin, after.begin}, "%s was written after it had left the log", e.path)
	}
	if e.call != "rename" {
		return nil
	}
	zeros := h.first(e.begin, func(w event) bool { return w.call == "pwrite64" && w.path == e.to })
	if zeros == nil {
		return nil
	}
	if err := namedBefore(h.events, *e, e.to, zeros.begin); err != nil {
		return broken([]int{e.begin, zeros.begin}, "%s was filled with zeros although %v", e.to, err)
	}
	return nil
}

// made checks a segment: written under tmp, renamed, the directory synced, and only
// then the manifest is told.
func (h *history) made(r *event) *fault {
	if path.Dir(r.path) != tmpDir {
		return broken([]int{r.begin}, "%s was not in %s before", r.to, tmpDir)
	}
	if !h.hasHeader(r, "SNKRSEG\x00") {
		return broken([]int{r.begin}, "%s got the name %s without a header", r.path, r.to)
	}
	edit := h.first(r.begin, isEdit)
	if edit == nil {
		return nil // the server was stopped before it came to that
	}
	if err := namedBefore(h.events, *r, r.to, edit.begin); err != nil {
		return broken([]int{r.begin, edit.begin}, "the manifest was told of %s although %v", r.to, err)
	}
	return nil
}

func isEdit(e event) bool { return e.call == "pwrite64" && strings.HasPrefix(e.path, manifest) }

// entered returns the position at which the manifest durably names a segment: the sync
// that follows the first edit after the segment got its name. 0 if that never came.
func (h *history) entered(name string) int {
	r := h.first(0, func(e event) bool { return segmentMade(&e) && path.Base(e.to) == name })
	if r == nil {
		return 0
	}
	edit := h.first(r.end, isEdit)
	if edit == nil || edit.result != edit.n {
		return 0
	}
	s := h.first(edit.end, func(e event) bool { return e.synced(edit.path) })
	if s == nil {
		return 0
	}
	return s.end
}

// gone checks the removal of a segment: all that was in it is in others.
func (h *history) gone(e *event) *fault {
	for _, m := range h.inSeg[path.Base(e.path)] {
		if f := h.housed(m, path.Base(e.path), e); f != nil {
			return f
		}
	}
	return nil
}

// housed checks that when loss begins, a marker is in a segment, other than one, that
// the manifest durably names and that has not been removed.
func (h *history) housed(marker, except string, loss *event) *fault {
	for _, name := range h.homes[marker] {
		if name == except {
			continue
		}
		if at := h.entered(name); at == 0 || at >= loss.begin {
			continue
		}
		if h.first(0, func(e event) bool {
			return segmentGone(&e) && path.Base(e.path) == name && e.begin < loss.begin
		}) == nil {
			return nil
		}
	}
	return broken([]int{loss.begin}, "%s lost its place by «%v», and no segment that the manifest durably names had it (of %v)",
		marker, loss, h.homes[marker])
}
