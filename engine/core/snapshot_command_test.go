package core

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

var bucketStates = map[string]Bucket{"open": BucketOpen, "absent": BucketAbsent, "frozen": BucketFrozen}

// digestOf makes a digest that begins with a word, for people to recognise.
func digestOf(word string) (d [32]byte) {
	copy(d[:], word)
	return d
}

func digestWord(s *record.Snapshot) string { return string(bytes.TrimRight(s.Digest[:], "\x00")) }

// snapshotOf fills in what is about snapshots, retention and attributes.
func snapshotOf(ev *Event, a *arguments) error {
	ev.BodyFault = a.has("body-fault")
	at, n := base.Offset(0), uint64(0)
	_, err := number(a, "at", &at)
	if err == nil {
		_, err = number(a, "record", &n)
	}
	switch ev.Op {
	case OpSnapshot:
		s := &record.Snapshot{Offset: at, Record: n, ContentType: "text/plain"}
		word, _ := a.get("digest")
		s.Digest, s.Size = digestOf(word), int64(len(word))
		if t, ok := a.get("type"); ok {
			s.ContentType = t
		}
		ev.Snapshot, ev.Retain = s, a.has("retain")
	case OpAttrs:
		if v, ok := a.get("attrs"); ok {
			ev.Attrs = []byte(v)
		}
	default:
		ev.Offset, ev.Ordinal = at, n
	}
	return err
}

// conditionsOf fills in the preconditions of a write, and what goes with its bucket.
func conditionsOf(ev *Event, a *arguments) (err error) {
	ev.Bucketed = a.has("bucketed")
	if v, ok := a.get("if-match"); ok {
		if ev.IfMatch, err = tags(v); err != nil {
			return err
		}
	}
	if v, ok := a.get("if-none-match"); ok {
		if ev.IfNoneMatch, err = tags(v); err != nil {
			return err
		}
	}
	ev.HasRecordMatch, err = number(a, "record-match", &ev.RecordMatch)
	return err
}

func tags(list string) (all []Match, err error) {
	for tag := range strings.SplitSeq(list, ",") {
		if tag == "*" {
			all = append(all, Match{Any: true})
			continue
		}
		f := strings.Split(tag, ":")
		if len(f) < 2 || len(f) > 3 || len(f) == 3 && f[2] != "c" {
			return nil, fmt.Errorf("a tag is * or ID:NEXT or ID:NEXT:c, not %q", tag)
		}
		id, err1 := strconv.ParseUint(f[0], 10, 53)
		next, err2 := strconv.ParseUint(f[1], 10, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("a tag of numbers, not %q", tag)
		}
		all = append(all, Match{Incarnation: Incarnation(1, base.StreamID(id)), Next: base.Offset(next), Closed: len(f) == 3})
	}
	return all, nil
}

func describeSnapshotRecord(b *strings.Builder, r *record.Record) {
	switch r.Type {
	case record.TypeSnapshot:
		fmt.Fprintf(b, ": %s", snapshotWords(r.Snapshot))
		if r.Trim {
			b.WriteString(", trims")
		}
	case record.TypeTrim:
		fmt.Fprintf(b, ": from %d record %d", r.Offset, r.Ordinal)
	case record.TypeDrop:
		fmt.Fprintf(b, ": snapshot %d", r.Offset)
	case record.TypeAttrs:
		fmt.Fprintf(b, ": %s", r.Attrs)
	}
}

func snapshotWords(s *record.Snapshot) string {
	return fmt.Sprintf("%d record %d %s %s", s.Offset, s.Record, digestWord(s), s.ContentType)
}

func describeSnapshotEffects(b *strings.Builder, e *Effects) {
	for _, s := range e.Snapshots {
		fmt.Fprintf(b, " snapshot %d", s.Offset)
		if s.Replaced != 0 {
			fmt.Fprintf(b, " replaced at %d", s.Replaced)
		}
	}
	if s := e.Dropped; s != nil {
		fmt.Fprintf(b, " snapshot %d removed", s.Offset)
	}
	if e.Attrs != nil {
		b.WriteString(" attributes")
	}
	if e.Trimmed {
		b.WriteString(", trimmed")
	}
	for _, s := range e.Freed {
		fmt.Fprintf(b, ", frees %s", digestWord(s))
	}
}

// showExtra prints what few streams have.
func showExtra(b *strings.Builder, x *Extra) {
	if x == nil {
		return
	}
	x.EachSnapshot(func(s *record.Snapshot) {
		fmt.Fprintf(b, "snapshot %s at %d", snapshotWords(s), s.At)
		if s.Replaced != 0 {
			fmt.Fprintf(b, " replaced at %d", s.Replaced)
		}
		b.WriteString("\n")
	})
	if x.Attrs != nil {
		fmt.Fprintf(b, "attributes %s\n", x.Attrs)
	}
}

// portraitExtra is the same with all that there is, in an order that rows do not have.
func portraitExtra(x *Extra) string {
	if x == nil {
		return ""
	}
	var all []string
	x.EachSnapshot(func(s *record.Snapshot) { all = append(all, fmt.Sprintf(" snapshot %+v", *s)) })
	slices.Sort(all)
	return fmt.Sprintf("%s attributes %q", strings.Join(all, ""), x.Attrs)
}
