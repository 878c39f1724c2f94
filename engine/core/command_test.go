package core

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// The commands of the scripts:
//
//	set [max-producers=N] [idle=DURATION] [max-state=BYTES] [history=N]
//	sleep DURATION
//	disk full|free
//	create STREAM [type=T] [WRITE…] [ttl=SECONDS] [expires=MILLIS] [from=STREAM [offset=N] [sub=N]]
//	       [id=N at=OFFSET records=N [with-snapshot=OFFSET]]  what a fork's chain has resolved, after its pin
//	append STREAM [type=T] [WRITE…]
//	delete STREAM [incarnation=N] [header-fault]
//	snapshot STREAM at=OFFSET record=N digest=WORD [type=T] [retain] [incarnation=N] [header-fault] [body-fault]
//	trim STREAM at=OFFSET record=N [incarnation=N] [header-fault] [body-fault]
//	drop STREAM at=OFFSET [incarnation=N] [header-fault]
//	attributes STREAM attrs=JSON [incarnation=N] [header-fault] [body-fault]
//	bucket NAME open|absent|frozen         what the shard knows of it
//	expire|touch ID
//	pin|unpin ID fork=ID [at=OFFSET]
//	upkeep                                 does what records have left to be done
//	show STREAM [history=N]                as the directory of that history shows it
//	state                                  the bytes of all heads
//
// WRITE is body=A|B (two messages), close, producer=ID/EPOCH/SEQ, seq=S, incarnation=N,
// if-match=TAGS, if-none-match=TAGS, record-match=N, attrs=JSON, bucketed, header-fault,
// body-fault; type is text/plain unless it is given or a fork's. TAGS are * or
// ID:NEXT[:c], separated by commas. A value in quotes is a Go string.
func (w *world) dispatch(a *arguments) (string, error) {
	switch a.verb {
	case "set":
		return "", w.set(a)
	case "sleep":
		d, err := time.ParseDuration(a.object)
		w.now += base.Millis(d.Milliseconds())
		return "", err
	case "disk":
		w.diskFull = a.object == "full"
		return "", nil
	case "state":
		return fmt.Sprintf("%d bytes\n", w.live.bytes()), nil
	case "show":
		h := w.live.named(name(a.object))
		var history uint16
		_, err := number(a, "history", &history)
		return show(h) + showPast(h, history), err
	case "upkeep":
		return w.doUpkeep()
	case "bucket":
		state, ok := bucketStates[a.word(2)]
		if !ok {
			return "", fmt.Errorf("a bucket is open, absent or frozen")
		}
		w.buckets[a.object] = state
		return "", nil
	}
	ev, err := w.event(a)
	if err != nil {
		return "", err
	}
	return w.answer(ev, a.object)
}

// name splits a stream's name; b is the bucket unless it is given.
func name(s string) (bucket, stream string) {
	if b, n, ok := strings.Cut(s, "/"); ok {
		return b, n
	}
	return "b", s
}

func parseArgs(line string) (*arguments, error) {
	a := &arguments{values: map[string]string{}, used: map[string]bool{}}
	for i := 0; line != ""; i++ {
		end := strings.IndexByte(line, ' ')
		if q := strings.Index(line, `="`); q >= 0 && (end < 0 || q < end) {
			quoted, err := strconv.QuotedPrefix(line[q+1:])
			if err != nil {
				return nil, err
			}
			end = q + 1 + len(quoted)
		}
		if end < 0 {
			end = len(line)
		}
		word := line[:end]
		line = strings.TrimLeft(line[end:], " ")
		key, value, _ := strings.Cut(word, "=")
		if strings.HasPrefix(value, `"`) {
			var err error
			if value, err = strconv.Unquote(value); err != nil {
				return nil, err
			}
		}
		switch {
		case i == 0:
			a.verb = word
		case i == 1 && a.verb != "set":
			a.object = word
		default:
			a.values[key] = value
		}
	}
	return a, nil
}

// number reads a decimal value into to, when it is there.
func number[T ~int64 | ~uint64 | ~int | ~uint16](a *arguments, key string, to *T) (bool, error) {
	v, ok := a.get(key)
	if !ok {
		return false, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	*to = T(n)
	return true, err
}

func (w *world) set(a *arguments) error {
	s := &w.settings
	if v, ok := a.get("idle"); ok {
		d, err := time.ParseDuration(v)
		if err != nil {
			return err
		}
		s.ProducerIdle = base.Millis(d.Milliseconds())
	}
	_, err := number(a, "max-producers", &s.MaxProducers)
	if err == nil {
		_, err = number(a, "max-state", &s.MaxState)
	}
	if err == nil {
		_, err = number(a, "history", &s.History)
	}
	return err
}

var verbs = map[string]Op{
	"create": OpCreate, "append": OpAppend, "delete": OpDelete, "expire": OpExpire, "touch": OpTouch, "pin": OpPin, "unpin": OpUnpin,
	"snapshot": OpSnapshot, "trim": OpTrim, "drop": OpDrop, "attributes": OpAttrs,
}

func (w *world) event(a *arguments) (*Event, error) {
	ev := &Event{Op: verbs[a.verb], TTL: -1}
	var err error
	switch ev.Op {
	case OpExpire, OpTouch, OpPin, OpUnpin:
		id, err := strconv.ParseUint(a.object, 10, 64)
		if err != nil {
			return nil, err
		}
		ev.Stream = base.StreamID(id)
		if _, err = number(a, "fork", &ev.ForkID); err == nil {
			_, err = number(a, "at", &ev.ForkOffset)
		}
		return ev, err
	case 0:
		return nil, fmt.Errorf("unknown command %q", a.verb)
	}
	ev.HeaderFault = a.has("header-fault")
	if ev.HasIncarnation, err = number(a, "incarnation", &ev.Incarnation); err != nil || ev.Op == OpDelete {
		return ev, err
	}
	switch ev.Op {
	case OpSnapshot, OpTrim, OpDrop, OpAttrs:
		return ev, snapshotOf(ev, a)
	}
	if err = conditionsOf(ev, a); err != nil {
		return ev, err
	}
	if err = writeOf(ev, a); err != nil || ev.Op == OpAppend {
		return ev, err
	}
	ev.Bucket, ev.Name = name(a.object)
	if _, err = number(a, "ttl", &ev.TTL); err == nil {
		_, err = number(a, "expires", &ev.ExpiresAt)
	}
	if err == nil {
		err = w.forkOf(ev, a)
	}
	return ev, err
}

// writeOf fills in what creates and appends have in common.
func writeOf(ev *Event, a *arguments) error {
	ev.BodyFault = a.has("body-fault")
	ev.Close = a.has("close")
	if s, ok := a.get("attrs"); ok {
		ev.Attrs = []byte(s)
	}
	t, ok := a.get("type")
	if _, fork := a.values["from"]; !ok && !fork && (ev.Op == OpCreate || a.has("body")) {
		t, ok = "text/plain", true
	}
	if ok {
		media, _, _ := strings.Cut(t, ";")
		ev.MediaType = []byte(strings.ToLower(media))
		ev.JSON = string(ev.MediaType) == "application/json"
		ev.ContentType = t
	}
	var body string
	if body, ev.HasBody = a.get("body"); body != "" {
		for m := range strings.SplitSeq(body, "|") {
			ev.Body = append(ev.Body, m...)
			ev.Ends = append(ev.Ends, uint32(len(ev.Body)))
		}
	}
	if s, ok := a.get("seq"); ok {
		ev.StreamSeq, ev.HasSeq = []byte(s), true
	}
	p, ok := a.get("producer")
	if !ok {
		return nil
	}
	f := strings.Split(p, "/")
	if len(f) != 3 {
		return fmt.Errorf("a producer is id/epoch/seq")
	}
	epoch, err1 := strconv.ParseUint(f[1], 10, 53)
	seq, err2 := strconv.ParseUint(f[2], 10, 53)
	if err1 != nil || err2 != nil {
		return fmt.Errorf("a producer's numbers are below 2^53")
	}
	ev.Producer = record.Producer{ID: []byte(f[0]), Epoch: epoch, Seq: seq, Set: true}
	return nil
}

// forkOf fills in what a create says of its source.
func (w *world) forkOf(ev *Event, a *arguments) error {
	from, ok := a.get("from")
	if !ok {
		return nil
	}
	f := &ForkSpec{}
	ev.Fork = f
	f.Bucket, f.Name = name(from)
	f.InheritType = ev.MediaType == nil
	f.InheritLife = ev.TTL < 0 && ev.ExpiresAt == 0
	var err error
	if f.HasOffset, err = number(a, "offset", &f.Offset); err != nil {
		return err
	}
	if _, err = number(a, "sub", &f.Sub); err != nil {
		return err
	}
	r := &record.Fork{Bucket: f.Bucket, Name: f.Name, ReqOffset: f.Offset, HasReqOffset: f.HasOffset, Sub: f.Sub}
	if resolved, err := number(a, "id", &ev.Stream); err != nil || !resolved {
		return err
	}
	src := w.live.named(f.Bucket, f.Name)
	if src == nil {
		return fmt.Errorf("there is no %s to resolve", from)
	}
	r.Source, r.TTL, r.ExpiresAt = src.ID, src.TTL, src.ExpiresAt
	if f.InheritType {
		ev.ContentType, ev.MediaType, ev.JSON = src.ContentType, []byte(src.MediaType), src.JSON
	}
	f.Resolved = r
	r.First, r.FirstRecord = src.First, src.FirstRecord
	var at base.Offset
	if ok, err := number(a, "with-snapshot", &at); err != nil {
		return err
	} else if ok {
		f.Snapshot = src.extra.Find(at)
	}
	if _, err = number(a, "at", &r.Offset); err == nil {
		_, err = number(a, "records", &r.Record)
	}
	return err
}

// answer submits an event, again as long as room has to be made, and says what
// came of it.
func (w *world) answer(ev *Event, object string) (string, error) {
	var b strings.Builder
	for {
		h := w.live.heads[ev.Stream]
		if ev.Stream == 0 || ev.Op == OpCreate {
			h = w.live.named(name(object))
		}
		a, rec, eff, logged, err := w.submit(h, ev)
		if err != nil {
			return "", err
		}
		describeAnswer(&b, &a)
		if logged {
			describeRecord(&b, &rec)
			describeEffects(&b, &eff)
		}
		if a.Code != NeedsRoom {
			return b.String(), nil
		}
	}
}

func (w *world) doUpkeep() (string, error) {
	var b strings.Builder
	for len(w.upkeep) > 0 {
		ev := w.upkeep[0]
		w.upkeep = w.upkeep[1:]
		s, err := w.answer(&ev, "")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "unpin %d fork=%d: %s", ev.Stream, ev.ForkID, s)
	}
	return b.String(), nil
}

var codeNames = map[Code]string{
	Created: "created", Exists: "exists", Appended: "appended", Closed: "closed", Duplicate: "duplicate", Deleted: "done",
	NotFound: "not found", Gone: "gone", IncarnationMismatch: "another incarnation", HeaderFault: "header fault",
	HistoryChanged: "history has changed", StaleEpoch: "stale epoch", StreamClosed: "stream closed", ClosedDuplicate: "duplicate, closed since",
	EpochNeedsSeqZero: "new epoch must begin at 0", SequenceGap: "gap", ContentTypeMismatch: "another content type",
	StreamSeqRegression: "Stream-Seq went back", BodyFault: "body fault", ConfigMismatch: "configured otherwise",
	NameHeldByForks: "name held by forks", ForkSourceNotFound: "source not found", ForkSourceGone: "source gone",
	ForkOffsetInvalid: "no such place in the source", TooManyProducers: "too many producers", StateFull: "state full",
	DiskFull: "disk full", NeedsSource: "needs its source", NeedsRoom: "needs room",
	PreconditionFailed: "precondition failed", RecordMismatch: "another record",
	BucketNotFound: "no such bucket", BucketClosing: "bucket is closing",
	SnapshotTrimmed: "trimmed", SnapshotBeyondTail: "beyond the tail", SnapshotStale: "older than the snapshot",
	SnapshotConflict: "other bytes there", SnapshotIsCurrent: "it is the current one", SnapshotNotFound: "no such snapshot",
	RetentionBehind: "retention goes back", RetentionAhead: "retention beyond the snapshot",
}

func describeAnswer(b *strings.Builder, a *Answer) {
	fmt.Fprintf(b, "%s", codeNames[a.Code])
	if a.Stream != 0 {
		fmt.Fprintf(b, " #%d", a.Stream)
		if a.HasStart {
			fmt.Fprintf(b, " bytes [%d, %d) records [%d, %d)", a.Start, a.Next, a.StartRecord, a.NextRecord)
		} else {
			fmt.Fprintf(b, " next %d record %d", a.Next, a.NextRecord)
		}
	}
	if a.Closed {
		b.WriteString(" closed")
	}
	if a.HasProducer && a.Code != HistoryChanged {
		fmt.Fprintf(b, " highest %d/%d", a.Epoch, a.Seq)
	}
	if a.Code == SequenceGap {
		fmt.Fprintf(b, " expected %d", a.ExpectedSeq)
	}
	switch {
	case a.Code == HistoryChanged && a.HasReplaced:
		fmt.Fprintf(b, " after %d, left %d/%d", a.Epoch, a.ReplacedEpoch, a.ReplacedSeq)
	case a.Code == HistoryChanged:
		fmt.Fprintf(b, " after %d", a.Epoch)
	case a.HasReplaced:
		fmt.Fprintf(b, " replaced %d/%d", a.ReplacedEpoch, a.ReplacedSeq)
	}
	if i := a.Inherited; i.Incarnation != 0 {
		fmt.Fprintf(b, ", was %d up to %d", i.Incarnation, i.UpTo)
	}
	if a.Code == StreamSeqRegression {
		fmt.Fprintf(b, " last %q", a.LastSeq)
	}
	if a.First > 0 {
		fmt.Fprintf(b, " from %d record %d", a.First, a.FirstRecord)
	}
	if s := a.Snapshot; s != nil {
		fmt.Fprintf(b, " snapshot %d %s", s.Offset, digestWord(s))
	}
	b.WriteString("\n")
}

var typeNames = map[record.Type]string{
	record.TypeCreate: "create", record.TypeAppend: "append", record.TypeDelete: "delete", record.TypeTouch: "touch",
	record.TypePin: "pin", record.TypeUnpin: "unpin", record.TypeForget: "forget",
	record.TypeSnapshot: "snapshot", record.TypeTrim: "trim", record.TypeDrop: "drop", record.TypeAttrs: "attributes",
}

func describeRecord(b *strings.Builder, r *record.Record) {
	fmt.Fprintf(b, "record %s #%d at %d", typeNames[r.Type], r.Stream, r.At)
	switch r.Type {
	case record.TypeCreate, record.TypeAppend:
		fmt.Fprintf(b, ": %q from %d", r.Body, r.Offset)
		if r.History != 0 {
			fmt.Fprintf(b, ", history %d", r.History)
		}
	case record.TypePin, record.TypeUnpin:
		fmt.Fprintf(b, ": fork #%d up to %d", r.ForkID, r.ForkOffset)
	case record.TypeForget:
		fmt.Fprintf(b, ": %s", r.Producer.ID)
	case record.TypeDelete:
		if r.Expired {
			b.WriteString(": expired")
		}
	default:
		describeSnapshotRecord(b, r)
	}
	b.WriteString("\n")
}

func describeEffects(b *strings.Builder, e *Effects) {
	b.WriteString("rows")
	if e.Config {
		b.WriteString(" config")
	}
	if e.State {
		b.WriteString(" state")
	}
	if e.ProducerID != nil {
		fmt.Fprintf(b, " producer %s%s", e.ProducerID, removed(e.Producer == nil))
	}
	if e.Pin != 0 {
		fmt.Fprintf(b, " pin %d%s", e.Pin, removed(e.PinRemoved))
	}
	describeSnapshotEffects(b, e)
	if e.Gone {
		b.WriteString(", tombstone")
	}
	if e.Release != nil {
		fmt.Fprintf(b, ", releases #%d", e.Release.Source)
	}
	b.WriteString("\n")
}

func removed(on bool) string {
	if on {
		return " removed"
	}
	return ""
}

// showPast says what a stream has from before a restore.
func showPast(h *Head, history uint16) string {
	if h == nil || history == 0 {
		return ""
	}
	v := h.View()
	if i := v.Inheritance(history, 0); i.Incarnation != 0 {
		return fmt.Sprintf("was %d up to %d\n", i.Incarnation, i.UpTo)
	}
	return "began in this history\n"
}

// show prints a head for people.
func show(h *Head) string {
	if h == nil {
		return "nothing\n"
	}
	var b strings.Builder
	v := h.View()
	fmt.Fprintf(&b, "#%d %s bytes [%d, %d) records [%d, %d) created %d written %d touched %d", v.ID, v.ContentType,
		v.First, v.Next, v.FirstRecord, v.NextRecord, v.Created, v.LastWrite, h.Touched)
	if v.Expires() {
		fmt.Fprintf(&b, " deadline %d", v.Deadline(h.Touched))
	}
	for _, f := range []struct {
		on   bool
		word string
	}{{v.JSON, "json"}, {v.Closed, "closed"}, {v.Deleted, "deleted"}} {
		if f.on {
			b.WriteString(" " + f.word)
		}
	}
	b.WriteString("\n")
	if h.HasSeq {
		fmt.Fprintf(&b, "Stream-Seq %q\n", h.Seq)
	}
	if h.HasClosedBy {
		fmt.Fprintf(&b, "closed by %s %d/%d\n", h.ClosedBy, h.ClosedEpoch, h.ClosedSeq)
	}
	if f := h.Fork; f != nil {
		fmt.Fprintf(&b, "fork of #%d up to byte %d, record %d\n", f.Source, f.Offset, f.Record)
	}
	for _, id := range slices.Sorted(maps.Keys(h.producers)) {
		p := h.producers[id]
		fmt.Fprintf(&b, "producer %s %d/%d bytes [%d, %d) records [%d, %d) at %d\n", id, p.Epoch, p.Seq, p.Start, p.End, p.StartRecord, p.EndRecord, p.At)
	}
	showExtra(&b, h.Extra())
	pins := make([]string, 0, h.Pins())
	h.EachPin(func(fork base.StreamID, upTo base.Offset) {
		pins = append(pins, fmt.Sprintf("pinned by #%03d up to %d\n", fork, upTo))
	})
	slices.Sort(pins)
	return b.String() + strings.Join(pins, "")
}
