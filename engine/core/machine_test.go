package core

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/wal/record"
)

// machine is a set of streams that changes by records only, the way recovery and
// replicas see it, and keeps the rows that Apply tells of.
type machine struct {
	heads map[base.StreamID]*Head
	rows  map[base.StreamID]map[string][]byte
	now   base.Millis
}

func newMachine() *machine {
	return &machine{heads: map[base.StreamID]*Head{}, rows: map[base.StreamID]map[string][]byte{}}
}

// named returns the stream that holds a name, or nil.
func (m *machine) named(bucket, name string) *Head {
	for _, h := range m.heads {
		if h.Bucket == bucket && h.Name == name {
			return h
		}
	}
	return nil
}

// bytes is what --max-state-bytes is compared with.
func (m *machine) bytes() (n int64) {
	for _, h := range m.heads {
		n += h.Bytes()
	}
	return n
}

// apply carries out a record and keeps the rows.
func (m *machine) apply(rec *record.Record) (Effects, error) {
	var eff Effects
	h, err := Apply(m.heads[rec.Stream], rec, &eff)
	if err != nil {
		return eff, err
	}
	if rec.At < m.now {
		return eff, fmt.Errorf("time went back from %d to %d", m.now, rec.At)
	}
	m.now = rec.At
	if eff.Gone {
		delete(m.heads, rec.Stream)
		delete(m.rows, rec.Stream)
		return eff, nil
	}
	m.heads[rec.Stream] = h
	rows := m.rows[rec.Stream]
	if rows == nil {
		rows = map[string][]byte{}
		m.rows[rec.Stream] = rows
	}
	if eff.Config {
		rows[string(record.ConfigKey)] = h.Config.AppendRow(nil)
	}
	if eff.State {
		rows[string(record.StateKey)] = h.State.AppendRow(nil)
	}
	if eff.ProducerID != nil {
		key := string(record.AppendProducerKey(nil, eff.ProducerID))
		if delete(rows, key); eff.Producer != nil {
			rows[key] = eff.Producer.AppendRow(nil)
		}
	}
	if eff.Pin != 0 {
		key := string(record.AppendPinKey(nil, eff.Pin))
		if delete(rows, key); !eff.PinRemoved {
			rows[key] = record.AppendPinRow(nil, eff.PinOffset)
		}
	}
	for _, s := range eff.Snapshots {
		rows[string(record.AppendSnapshotKey(nil, s.Offset))] = s.AppendRow(nil)
	}
	if eff.Dropped != nil {
		delete(rows, string(record.AppendSnapshotKey(nil, eff.Dropped.Offset)))
	}
	if eff.Attrs != nil {
		rows[string(record.AttrsKey)] = slices.Clone(eff.Attrs)
	}
	return eff, nil
}

// restored builds a head from its rows alone, as a start does.
func (m *machine) restored(id base.StreamID) (*Head, error) {
	rows := m.rows[id]
	c, err := record.DecodeConfig(rows[string(record.ConfigKey)])
	if err != nil {
		return nil, err
	}
	s, err := record.DecodeState(rows[string(record.StateKey)])
	if err != nil {
		return nil, err
	}
	h := Restore(id, c, s)
	for key, value := range rows {
		parsed, err := record.ParseKey([]byte(key))
		kind, fork, producer := parsed.Kind, parsed.Fork, parsed.Producer
		if err != nil {
			return nil, err
		}
		switch {
		case kind == record.RowPin:
			upTo, err := record.DecodePin(value)
			if err != nil {
				return nil, err
			}
			h.AddPin(fork, upTo)
		case kind == record.RowProducer && !s.Deleted: // what has ended keeps no producers
			p, err := record.DecodeProducer(value)
			if err != nil {
				return nil, err
			}
			h.AddProducer(string(producer), &p)
		case kind == record.RowSnapshot && !s.Deleted:
			n, err := record.DecodeSnapshot(parsed.Offset, value)
			if err != nil {
				return nil, err
			}
			h.AddSnapshot(n)
		case kind == record.RowAttrs && !s.Deleted:
			h.AddAttrs(value)
		}
	}
	return h, nil
}

// portrait is all that a head says, in a form that can be compared.
func portrait(h *Head) string {
	var b bytes.Buffer
	c := h.Config
	fork := c.Fork
	c.Fork = nil
	fmt.Fprintf(&b, "stream %d config %+v state %+v", h.ID, c, h.State)
	if fork != nil {
		fmt.Fprintf(&b, " fork %+v", *fork)
	}
	for _, id := range slices.Sorted(maps.Keys(h.producers)) {
		fmt.Fprintf(&b, " producer %q %+v", id, *h.producers[id])
	}
	for _, id := range slices.Sorted(maps.Keys(h.pins)) {
		fmt.Fprintf(&b, " pin %d %d", id, h.pins[id])
	}
	fmt.Fprintf(&b, "%s bytes %d", portraitExtra(h.Extra()), h.Bytes())
	return b.String()
}

// world is a machine that decides, and a replica that gets the records through
// their encoding.
type world struct {
	live, replica *machine
	settings      Settings
	now           base.Millis
	nextID        base.StreamID
	diskFull      bool
	buckets       map[string]Bucket
	log           []string      // the records, in words, for failure messages
	upkeep        []Event       // what records have left to be done
	decoded       record.Record // of the replica, reused as recovery does
}

func newWorld() *world {
	return &world{
		live: newMachine(), replica: newMachine(), now: 1000, nextID: 1, buckets: map[string]Bucket{},
		settings: Settings{MaxProducers: 4, MaxState: 1 << 20, History: 1},
	}
}

// submit answers an event and checks that its record means the same to everybody.
func (w *world) submit(h *Head, ev *Event) (a Answer, rec record.Record, eff Effects, logged bool, err error) {
	before := ""
	if h != nil {
		before = portrait(h)
	}
	env := Env{Settings: &w.settings, Now: w.now, NewID: w.nextID, State: w.live.bytes(), DiskFull: w.diskFull, Bucket: w.buckets[ev.Bucket]}
	logged = Decide(h, ev, &env, &rec, &a)
	if h != nil && portrait(h) != before {
		return a, rec, eff, logged, fmt.Errorf("Decide changed the head from %s to %s", before, portrait(h))
	}
	if !logged {
		return a, rec, eff, false, nil
	}
	w.log = append(w.log, fmt.Sprintf("%+v", rec))
	if rec.Type == record.TypeCreate {
		w.nextID = max(w.nextID, rec.Stream+1)
	}
	head := rec.AppendHead(nil)
	if eff, err = w.live.apply(&rec); err != nil {
		return a, rec, eff, true, fmt.Errorf("its own record does not apply: %w", err)
	}
	if eff.Release != nil {
		w.upkeep = append(w.upkeep, Event{Op: OpUnpin, Stream: eff.Release.Source, ForkID: rec.Stream})
	}
	return a, rec, eff, true, w.replicate(&rec, head)
}

// replicate applies the record to the replica and compares: record, heads, rows.
func (w *world) replicate(rec *record.Record, head []byte) error {
	d := &w.decoded
	if err := d.Decode(rec.Type, head, rec.Body); err != nil {
		return fmt.Errorf("its own record does not decode: %w", err)
	}
	if again := d.AppendHead(nil); !bytes.Equal(again, head) {
		return fmt.Errorf("record % x encodes again as % x", head, again)
	}
	if _, err := w.replica.apply(d); err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	a, b := w.live.heads[rec.Stream], w.replica.heads[rec.Stream]
	if (a == nil) != (b == nil) {
		return fmt.Errorf("stream %d is there in only one of two machines", rec.Stream)
	}
	if a == nil {
		return nil
	}
	if x, y := portrait(a), portrait(b); x != y {
		return fmt.Errorf("replica has\n%s, not\n%s", y, x)
	}
	if !reflect.DeepEqual(w.live.rows[rec.Stream], w.replica.rows[rec.Stream]) {
		return fmt.Errorf("replica of stream %d has other rows", rec.Stream)
	}
	c, err := w.live.restored(rec.Stream)
	if err != nil {
		return err
	}
	if x, y := portrait(a), portrait(c); x != y {
		return fmt.Errorf("rows say\n%s, not\n%s", y, x)
	}
	return nil
}
