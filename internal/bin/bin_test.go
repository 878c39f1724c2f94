package bin_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/snakream/snakream/internal/bin"
)

func TestRoundTrip(t *testing.T) {
	var b []byte
	b = append(b, 7)
	b = bin.AppendU16(b, 0x0102)
	b = bin.AppendU32(b, 0x01020304)
	b = bin.AppendU64(b, math.MaxUint64-1)
	b = bin.AppendUvarint(b, 300)
	b = bin.AppendVarint(b, math.MinInt64)
	b = bin.AppendVarint(b, math.MaxInt64)
	b = bin.AppendBytes(b, []byte("payload"))
	b = bin.AppendBytes(b, "text")
	b = bin.AppendUvarint(b, 3)
	b = append(b, "abcxyrest"...)

	d := bin.NewDecoder(b)
	check := func(name string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	check("U8", d.U8(), uint8(7))
	check("U16", d.U16(), uint16(0x0102))
	check("U32", d.U32(), uint32(0x01020304))
	check("U64", d.U64(), uint64(math.MaxUint64-1))
	check("Uvarint", d.Uvarint(), uint64(300))
	check("Varint", d.Varint(), int64(math.MinInt64))
	check("Varint", d.Varint(), int64(math.MaxInt64))
	check("Bytes", string(d.Bytes(7)), "payload")
	check("String", d.String(100), "text")
	check("Count", d.Count(3), 3)
	check("Raw", string(d.Raw(3)), "abc")
	d.Skip(2)
	check("Len", d.Len(), 4)
	check("Rest", string(d.Rest()), "rest")
	check("End", d.End(), error(nil))
}

func TestFixedWidthIsLittleEndian(t *testing.T) {
	got := bin.AppendU64(bin.AppendU32(bin.AppendU16(nil, 0x0102), 0x03040506), 0x0708090a0b0c0d0e)
	want := []byte{2, 1, 6, 5, 4, 3, 0xe, 0xd, 0xc, 0xb, 0xa, 9, 8, 7}
	if !bytes.Equal(got, want) {
		t.Errorf("got % x, want % x", got, want)
	}
}

func TestRefusals(t *testing.T) {
	huge := binary.AppendUvarint(nil, 1<<63)
	tests := []struct {
		name string
		in   []byte
		read func(d *bin.Decoder)
		want error
	}{
		{"U8 of nothing", nil, func(d *bin.Decoder) { d.U8() }, bin.ErrShort},
		{"U16 of one byte", []byte{1}, func(d *bin.Decoder) { d.U16() }, bin.ErrShort},
		{"U32 of three bytes", []byte{1, 2, 3}, func(d *bin.Decoder) { d.U32() }, bin.ErrShort},
		{"U64 of seven bytes", make([]byte, 7), func(d *bin.Decoder) { d.U64() }, bin.ErrShort},
		{"Uvarint cut off", []byte{0x80}, func(d *bin.Decoder) { d.Uvarint() }, bin.ErrShort},
		{"Uvarint above 64 bits", bytes.Repeat([]byte{0xff}, 11), func(d *bin.Decoder) { d.Uvarint() }, bin.ErrVarint},
		{"Uvarint not in its shortest form", []byte{0x81, 0}, func(d *bin.Decoder) { d.Uvarint() }, bin.ErrVarint},
		{"Bytes above the limit", []byte{4, 1, 2, 3, 4}, func(d *bin.Decoder) { d.Bytes(3) }, bin.ErrTooLong},
		{"Bytes cut off", []byte{4, 1, 2, 3}, func(d *bin.Decoder) { d.Bytes(4) }, bin.ErrShort},
		{"Bytes of a length that is negative as int64", huge, func(d *bin.Decoder) { d.Bytes(math.MaxUint64) }, bin.ErrShort},
		{"String of a huge length", huge, func(d *bin.Decoder) { d.String(10) }, bin.ErrTooLong},
		{"Count above the limit", []byte{4, 1, 1, 1, 1}, func(d *bin.Decoder) { d.Count(3) }, bin.ErrTooLong},
		{"Count above what is left", []byte{4, 1, 1, 1}, func(d *bin.Decoder) { d.Count(9) }, bin.ErrShort},
		{"Count that is negative as int64", huge, func(d *bin.Decoder) { d.Count(math.MaxUint64) }, bin.ErrShort},
		{"Raw of too much", []byte{1}, func(d *bin.Decoder) { d.Raw(2) }, bin.ErrShort},
		{"Raw of a negative length", []byte{1}, func(d *bin.Decoder) { d.Raw(-1) }, bin.ErrShort},
		{"Skip of too much", []byte{1}, func(d *bin.Decoder) { d.Skip(2) }, bin.ErrShort},
		{"something left", []byte{1, 2}, func(d *bin.Decoder) { d.U8() }, bin.ErrTooLong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := bin.NewDecoder(tt.in)
			tt.read(d)
			if err := d.End(); !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if d.Len() != 0 || d.U8() != 0 || d.Bytes(9) != nil || d.Count(9) != 0 || d.Rest() != nil {
				t.Error("a read after the error gave something")
			}
			if err := d.Err(); !errors.Is(err, tt.want) {
				t.Errorf("later reads changed the error to %v", err)
			}
		})
	}
}

func TestErrorSaysWhere(t *testing.T) {
	d := bin.NewDecoder([]byte{1, 2, 3})
	d.U16()
	d.U32()
	if got, want := d.Err().Error(), "at byte 2 of 3: input is too short"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	d.Reset([]byte{9})
	if d.U8() != 9 || d.End() != nil {
		t.Error("Reset kept something of the old input")
	}
}

func TestSums(t *testing.T) {
	body := []byte("some bytes that are longer than one stripe of the hash function")
	seed := uint64(0x1122334455667788)
	if got, want := bin.SumSeeded(seed, body), bin.Sum(append(bin.AppendU64(nil, seed), body...)); got != want {
		t.Errorf("SumSeeded = %x, want %x", got, want)
	}
	if got, want := bin.SumFollowed(body, seed), bin.Sum(bin.AppendU64(bytes.Clone(body), seed)); got != want {
		t.Errorf("SumFollowed = %x, want %x", got, want)
	}
	if got, want := bin.Sum(nil), uint64(0xef46db3751d8e999); got != want {
		t.Errorf("Sum of nothing = %x, want xxhash64's %x", got, want)
	}
}

func TestNoAllocations(t *testing.T) {
	b := bin.AppendBytes(nil, make([]byte, 100))
	dst := make([]byte, 0, 200)
	n := testing.AllocsPerRun(100, func() {
		var d bin.Decoder
		d.Reset(b)
		dst = bin.AppendBytes(dst[:0], d.Bytes(100))
		bin.SumSeeded(bin.SumFollowed(dst, 1), dst)
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// FuzzDecoder reads input by a program, one byte an instruction, and compares with
// the same done naively: what is accepted encodes to the very same bytes.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03"), make([]byte, 15))
	f.Add([]byte("\x04\x05\x06\x07"), []byte{0x80, 1, 3, 2, 'a', 'b', 1, 1})
	f.Add([]byte("\x04"), []byte{0x81, 0})
	f.Add([]byte("\x05"), bytes.Repeat([]byte{0xff}, 11))
	f.Add([]byte("\x06\x08"), binary.AppendUvarint(nil, 1<<63))
	f.Add([]byte("\x08\x09\x0a"), []byte{3, 1, 2, 3, 4, 5, 6, 7})
	f.Fuzz(func(t *testing.T, program, in []byte) {
		const limit = 1 << 20
		d := bin.NewDecoder(in)
		var out []byte
		for _, op := range program {
			switch op % 11 {
			case 0:
				out = append(out, d.U8())
			case 1:
				out = bin.AppendU16(out, d.U16())
			case 2:
				out = bin.AppendU32(out, d.U32())
			case 3:
				out = bin.AppendU64(out, d.U64())
			case 4:
				out = bin.AppendUvarint(out, d.Uvarint())
			case 5:
				out = bin.AppendVarint(out, d.Varint())
			case 6:
				out = bin.AppendBytes(out, d.Bytes(limit))
			case 7:
				out = bin.AppendBytes(out, d.String(limit))
			case 8:
				n := d.Count(limit)
				if n > d.Len() {
					t.Fatalf("Count gave %d with %d bytes left", n, d.Len())
				}
				out = bin.AppendUvarint(out, uint64(n))
			case 9:
				out = append(out, d.Raw(int(op))...)
			case 10:
				out = append(out, d.Rest()...)
			}
			if d.Err() != nil {
				if d.Len() != 0 {
					t.Fatal("bytes are left after an error")
				}
				return
			}
			if want := in[:len(in)-d.Len()]; !bytes.Equal(out, want) {
				t.Fatalf("read % x, which encodes as % x", want, out)
			}
		}
	})
}
