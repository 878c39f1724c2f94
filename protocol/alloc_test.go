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
	conditional := request("POST /ds/tenant-1/run-42", "Content-Type: application/json", `If-Match: "7:00000000000000001234", "7:00000000000000001234:c"`, "Stream-Record-Match: 5", "body: 64")
	byRecord := request("GET /ds/tenant-1/run-42?record=5&max_records=100&record_view=envelope")
	counted := *written
	counted.ContentType, counted.Records = "application/json", Records{Set: true, First: 1, Next: 9, HasStart: true, Start: 8}
	m, multipart := NewMultipart(boundaryOf(1)), make([]byte, 0, 4096)
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
		"conditional append": func() {
			if p := Parse(conditional, op); p != nil || op.Fault != nil || !op.Match(7, 1234, true) {
				t.Fatal(p, op.Fault)
			}
			r.Write(dst[:0], op, &counted)
		},
		"read by record": func() {
			if p := Parse(byRecord, op); p != nil || op.Fault != nil {
				t.Fatal(p, op.Fault)
			}
			r.Read(dst[:0], op, read)
			e := Envelope{Next: 5}
			e.Append(dst[:0], []byte(`{"a":1},2,`))
		},
		"bootstrap": func() {
			multipart = m.AppendEnd(m.AppendMessage(multipart[:0], "text/plain", 9))
			if m.MessageSize("text/plain", 9)+m.EndSize() != int64(len(multipart))+9 {
				t.Fatal(len(multipart))
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
