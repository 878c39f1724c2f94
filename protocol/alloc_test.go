package protocol

import "testing"

func ordinary(tb testing.TB) (appendRequest, readRequest *Request) {
	tb.Helper()
	return request("POST /v1/stream/tenant-1/run%2D42", "Host: localhost:4437", "User-Agent: x", "Content-Type: application/json", "Content-Length: 64",
			"Producer-Id: worker-17", "Producer-Epoch: 3", "Producer-Seq: 1234", "body: 64"),
		request("GET /v1/stream/tenant-1/run-42?offset=00000000000000001234&live=long-poll&cursor=3456789", "Host: localhost:4437", "Accept: */*",
			`If-None-Match: "7:00000000000000001234:00000000000000001234"`)
}

// The hot paths allocate nothing once their buffers have grown.
func TestNoAllocations(t *testing.T) {
	post, get := ordinary(t)
	r, op, dst := NewRenderer(Settings{}), new(Operation), make([]byte, 0, 4096)
	written := &WriteResult{Outcome: Appended, Incarnation: 7, Start: 40, HasStart: true, Next: 42, HasProducer: true, ProducerEpoch: 3, ProducerSeq: 1234}
	read := &ReadResult{Incarnation: 7, Start: 1234, Next: 2345, UpToDate: true, ContentType: "application/json", Cursor: 3456790}
	Parse(post, op)
	for name, f := range map[string]func(){
		"append": func() {
			if p := Parse(post, op); p != nil || op.Fault != nil || !op.Producer.Set {
				t.Fatal(p, op.Fault)
			}
			r.Write(dst[:0], op, written)
		},
		"read": func() {
			if p := Parse(get, op); p != nil || op.Fault != nil {
				t.Fatal(p, op.Fault)
			}
			if status, _ := r.Read(dst[:0], op, read); status != 200 {
				t.Fatal(status)
			}
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	post, get := ordinary(b)
	for _, c := range []struct {
		name string
		r    *Request
	}{{"append", post}, {"read", get}} {
		b.Run(c.name, func(b *testing.B) {
			op := new(Operation)
			b.ReportAllocs()
			for b.Loop() {
				Parse(c.r, op)
			}
		})
	}
}

func BenchmarkRender(b *testing.B) {
	post, get := ordinary(b)
	r, op, dst := NewRenderer(Settings{}), new(Operation), make([]byte, 0, 4096)
	b.Run("append", func(b *testing.B) {
		Parse(post, op)
		res := &WriteResult{Outcome: Appended, Incarnation: 7, Start: 40, HasStart: true, Next: 42, HasProducer: true, ProducerEpoch: 3, ProducerSeq: 1234}
		b.ReportAllocs()
		for b.Loop() {
			r.Write(dst[:0], op, res)
		}
	})
	b.Run("read", func(b *testing.B) {
		Parse(get, op)
		res := &ReadResult{Incarnation: 7, Start: 1234, Next: 2345, UpToDate: true, ContentType: "application/json"}
		b.ReportAllocs()
		for b.Loop() {
			r.Read(dst[:0], op, res)
		}
	})
}
