package record

import (
	"fmt"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/bin"
)

// A record is a head, encoded here, and a body, which is the stream's bytes as
// they are stored. The log carries its type and both lengths.
//
//	create   stream u, at v, flags 1, [history u], config, offset u, [producer], [seq], [attributes b], [snapshot], [ends]
//	append   stream u, at v, flags 1, [history u], offset u, [producer], [seq], [ends]
//	delete   stream u, at v, flags 1
//	touch    stream u, at v
//	pin      stream u, at v, fork u, offset u
//	unpin    stream u, at v, fork u, offset u
//	forget   stream u, at v, id b
//	mark     0 u, at v
//	snapshot stream u, at v, flags 1, snapshot
//	trim     stream u, at v, offset u, record u
//	drop     stream u, at v, offset u
//	attrs    stream u, at v, attributes b
//
//	config   bucket b, name b, content type b, media type b, flags 1,
//	         ttl v, expires v, created v, [fork]
//	fork     source u, offset u, record u, bucket b, name b, flags 1, [request offset u], sub u,
//	         ttl v, expires v, first u, first record u
//	producer id b, epoch u, seq u
//	snapshot offset u, record u, digest 32, size u, content type b
//	attributes are never empty
//	history  2..4095
//	ends     count u, then as many distances u, each at least 1
//
// u is an unsigned varint, v a signed one, b a byte string behind its length u.
// ends are left out when the body is a single message, or empty.
const (
	flagClose    = 1 << 0
	flagProducer = 1 << 1
	flagSeq      = 1 << 2
	flagEnds     = 1 << 3
	flagAttrs    = 1 << 4 // create only
	flagSnapshot = 1 << 5 // create only
	flagHistory  = 1 << 6
	flagsKnown   = 1<<7 - 1

	flagExpired = 1 << 0
	flagTrim    = 1 << 0

	configJSON  = 1 << 0
	configFork  = 1 << 1
	configKnown = 1<<2 - 1

	forkReqOffset = 1 << 0
	forkKnown     = 1<<1 - 1
)

// AppendHead appends the encoding of everything but the body.
func (r *Record) AppendHead(dst []byte) []byte {
	dst = bin.AppendUvarint(dst, uint64(r.Stream))
	dst = bin.AppendVarint(dst, int64(r.At))
	switch r.Type {
	case TypeCreate, TypeAppend:
		return r.appendWrite(dst)
	case TypeDelete:
		var f byte
		if r.Expired {
			f = flagExpired
		}
		return append(dst, f)
	case TypeForget:
		return bin.AppendBytes(dst, r.Producer.ID)
	case TypePin, TypeUnpin:
		dst = bin.AppendUvarint(dst, uint64(r.ForkID))
		return bin.AppendUvarint(dst, uint64(r.ForkOffset))
	case TypeSnapshot:
		return r.Snapshot.append(append(dst, bit(r.Trim, flagTrim)))
	case TypeTrim:
		dst = bin.AppendUvarint(dst, uint64(r.Offset))
		return bin.AppendUvarint(dst, r.Ordinal)
	case TypeDrop:
		return bin.AppendUvarint(dst, uint64(r.Offset))
	case TypeAttrs:
		return bin.AppendBytes(dst, r.Attrs)
	}
	return dst
}

func (r *Record) appendWrite(dst []byte) []byte {
	many := len(r.Ends) > 1
	dst = append(dst, bit(r.Close, flagClose)|bit(r.Producer.Set, flagProducer)|bit(r.HasSeq, flagSeq)|
		bit(many, flagEnds)|bit(r.Attrs != nil, flagAttrs)|bit(r.Snapshot != nil, flagSnapshot)|bit(r.History != 0, flagHistory))
	if r.History != 0 {
		dst = bin.AppendUvarint(dst, uint64(r.History))
	}
	if r.Type == TypeCreate {
		dst = r.Config.append(dst)
	}
	dst = bin.AppendUvarint(dst, uint64(r.Offset))
	if r.Producer.Set {
		dst = bin.AppendBytes(dst, r.Producer.ID)
		dst = bin.AppendUvarint(dst, r.Producer.Epoch)
		dst = bin.AppendUvarint(dst, r.Producer.Seq)
	}
	if r.HasSeq {
		dst = bin.AppendBytes(dst, r.Seq)
	}
	if r.Attrs != nil {
		dst = bin.AppendBytes(dst, r.Attrs)
	}
	if r.Snapshot != nil {
		dst = r.Snapshot.append(dst)
	}
	if many {
		dst = bin.AppendUvarint(dst, uint64(len(r.Ends)))
		last := uint32(0)
		for _, e := range r.Ends {
			dst = bin.AppendUvarint(dst, uint64(e-last))
			last = e
		}
	}
	return dst
}

func bit(on bool, f byte) byte {
	if on {
		return f
	}
	return 0
}

func (c *Config) append(dst []byte) []byte {
	dst = appendString(dst, c.Bucket)
	dst = appendString(dst, c.Name)
	dst = appendString(dst, c.ContentType)
	dst = appendString(dst, c.MediaType)
	dst = append(dst, bit(c.JSON, configJSON)|bit(c.Fork != nil, configFork))
	dst = bin.AppendVarint(dst, c.TTL)
	dst = bin.AppendVarint(dst, int64(c.ExpiresAt))
	dst = bin.AppendVarint(dst, int64(c.Created))
	if f := c.Fork; f != nil {
		dst = bin.AppendUvarint(dst, uint64(f.Source))
		dst = bin.AppendUvarint(dst, uint64(f.Offset))
		dst = bin.AppendUvarint(dst, f.Record)
		dst = appendString(dst, f.Bucket)
		dst = appendString(dst, f.Name)
		dst = append(dst, bit(f.HasReqOffset, forkReqOffset))
		if f.HasReqOffset {
			dst = bin.AppendUvarint(dst, uint64(f.ReqOffset))
		}
		dst = bin.AppendUvarint(dst, f.Sub)
		dst = bin.AppendVarint(dst, f.TTL)
		dst = bin.AppendVarint(dst, int64(f.ExpiresAt))
		dst = bin.AppendUvarint(dst, uint64(f.First))
		dst = bin.AppendUvarint(dst, f.FirstRecord)
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	dst = bin.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// Decode fills r from a log entry. It refuses anything that AppendHead would not
// have written. Slices of r alias head and body; r.Ends is reused.
func (r *Record) Decode(typ Type, head, body []byte) error {
	ends := r.Ends[:0]
	d := bin.NewDecoder(head)
	*r = Record{Type: typ, Stream: base.StreamID(d.Uvarint()), At: base.Millis(d.Varint()), Ends: ends}
	switch typ {
	case TypeCreate, TypeAppend:
		r.Body = body
		r.decodeWrite(d)
	case TypeDelete:
		f := d.U8()
		if f&^flagExpired != 0 {
			return fmt.Errorf("unknown flags %#x", f)
		}
		r.Expired = f&flagExpired != 0
	case TypeTouch, TypeMark:
	case TypeForget:
		r.Producer.ID = d.Bytes(MaxProducerID)
	case TypePin, TypeUnpin:
		r.ForkID = base.StreamID(d.Uvarint())
		r.ForkOffset = base.Offset(d.Uvarint())
	case TypeSnapshot:
		f := d.U8()
		if f&^flagTrim != 0 {
			return fmt.Errorf("unknown flags %#x", f)
		}
		r.Trim, r.Snapshot = f&flagTrim != 0, decodeSnapshot(d)
	case TypeTrim:
		r.Offset, r.Ordinal = base.Offset(d.Uvarint()), d.Uvarint()
	case TypeDrop:
		r.Offset = base.Offset(d.Uvarint())
	case TypeAttrs:
		r.Attrs = d.Bytes(MaxAttrs)
	default:
		return fmt.Errorf("unknown record type %d", typ)
	}
	if err := d.End(); err != nil {
		return fmt.Errorf("record of type %d: %w", typ, err)
	}
	return r.check(body)
}

func (r *Record) decodeWrite(d *bin.Decoder) {
	f := d.U8()
	if f&flagHistory != 0 {
		r.History = decodeHistory(d)
	}
	if r.Type == TypeCreate {
		r.Config = decodeConfig(d)
	}
	r.Close = f&flagClose != 0
	r.Offset = base.Offset(d.Uvarint())
	if f&flagProducer != 0 {
		r.Producer = Producer{ID: d.Bytes(MaxProducerID), Epoch: d.Uvarint(), Seq: d.Uvarint(), Set: true}
	}
	if f&flagSeq != 0 {
		r.Seq, r.HasSeq = d.Bytes(MaxStreamSeq), true
	}
	if f&flagAttrs != 0 {
		r.Attrs = d.Bytes(MaxAttrs)
	}
	if f&flagSnapshot != 0 {
		r.Snapshot = decodeSnapshot(d)
	}
	switch {
	case f&^flagsKnown != 0 || f&(flagAttrs|flagSnapshot) != 0 && r.Type != TypeCreate || f&flagAttrs != 0 && len(r.Attrs) == 0,
		f&flagHistory != 0 && r.History == 0:
		r.Type = 0 // check refuses it
	case f&flagEnds != 0:
		r.decodeEnds(d)
	case len(r.Body) > 0:
		r.Ends = append(r.Ends, uint32(len(r.Body)))
	}
}

// decodeHistory reads the number of a history other than the first, and returns 0
// for what is none.
func decodeHistory(d *bin.Decoder) uint16 {
	n := d.Uvarint()
	if n < 2 || n > MaxHistory {
		return 0
	}
	return uint16(n)
}

func (r *Record) decodeEnds(d *bin.Decoder) {
	n := d.Count(MaxMessages)
	if n < 2 || n > len(r.Body) {
		r.Type = 0
		return
	}
	end := uint64(0)
	for range n {
		step := d.Uvarint()
		if step == 0 || step > uint64(len(r.Body))-end {
			r.Type = 0
			return
		}
		end += step
		r.Ends = append(r.Ends, uint32(end))
	}
	if end != uint64(len(r.Body)) {
		r.Type = 0
	}
}

func (r *Record) check(body []byte) error {
	switch {
	case r.Type == 0:
		return fmt.Errorf("record with an impossible history, flags or message ends")
	case (r.Stream == 0) != (r.Type == TypeMark):
		return fmt.Errorf("record of type %d names stream %d", r.Type, r.Stream)
	case r.Type != TypeCreate && r.Type != TypeAppend && len(body) > 0:
		return fmt.Errorf("record of type %d has a body of %d bytes", r.Type, len(body))
	case len(body) > MaxBody:
		return fmt.Errorf("body of %d bytes is longer than %d", len(body), MaxBody)
	case r.Type == TypeCreate && r.Config == nil:
		return fmt.Errorf("create record with an impossible configuration")
	case (r.Producer.Set || r.Type == TypeForget) && len(r.Producer.ID) == 0:
		return fmt.Errorf("record of type %d with a producer without an id", r.Type)
	case r.Snapshot != nil && r.Snapshot.Size < 0:
		return fmt.Errorf("snapshot of %d bytes", r.Snapshot.Size)
	case r.Type == TypeAttrs && len(r.Attrs) == 0:
		return fmt.Errorf("attributes of no bytes")
	case (r.Type == TypePin || r.Type == TypeUnpin) && r.ForkID == 0:
		return fmt.Errorf("record of type %d names no fork", r.Type)
	}
	return nil
}

// decodeConfig returns nil for flags that nobody has defined and a fork of nothing.
func decodeConfig(d *bin.Decoder) *Config {
	c := &Config{
		Bucket:      d.String(MaxName),
		Name:        d.String(MaxName),
		ContentType: d.String(MaxContentType),
		MediaType:   d.String(MaxContentType),
	}
	f := d.U8()
	c.JSON = f&configJSON != 0
	c.TTL = d.Varint()
	c.ExpiresAt = base.Millis(d.Varint())
	c.Created = base.Millis(d.Varint())
	if f&configFork != 0 {
		k := &Fork{Source: base.StreamID(d.Uvarint()), Offset: base.Offset(d.Uvarint()), Record: d.Uvarint()}
		k.Bucket, k.Name = d.String(MaxName), d.String(MaxName)
		g := d.U8()
		if k.HasReqOffset = g&forkReqOffset != 0; k.HasReqOffset {
			k.ReqOffset = base.Offset(d.Uvarint())
		}
		k.Sub = d.Uvarint()
		k.TTL, k.ExpiresAt = d.Varint(), base.Millis(d.Varint())
		k.First, k.FirstRecord = base.Offset(d.Uvarint()), d.Uvarint()
		c.Fork = k
		if g&^forkKnown != 0 || k.Source == 0 {
			return nil
		}
	}
	if f&^configKnown != 0 {
		return nil
	}
	return c
}
