package engine_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/wal/record"
)

// openExample opens an engine in a directory of its own and returns what removes it.
func openExample(o engine.Options) (e *engine.Engine, done func()) {
	dir, err := os.MkdirTemp("", "snakream")
	if err != nil {
		log.Fatal(err)
	}
	o.WALFileBytes = 1 << 20
	o.WALMaxBytes = 4 << 20
	if e, err = engine.Open(dir, o); err != nil {
		log.Fatal(err)
	}
	return e, func() {
		if err := e.Close(); err != nil {
			log.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			log.Fatal(err)
		}
	}
}

// createStream makes a stream of text.
func createStream(e *engine.Engine, bucket, name string) {
	op := &engine.Op{Event: core.Event{
		Op: core.OpCreate, Bucket: bucket, Name: name, ContentType: "text/plain", MediaType: []byte("text/plain"), TTL: -1,
	}}
	if err := e.Do(op); err != nil || op.Answer.Code != core.Created {
		log.Fatal(op.Answer.Code, err)
	}
}

// message is an append of one message.
func message(text string) core.Event {
	return core.Event{
		Op: core.OpAppend, MediaType: []byte("text/plain"), HasBody: true, Body: []byte(text), Ends: []uint32{uint32(len(text))},
	}
}

// Open a directory, make a stream, append to it, and find it again after a restart.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "snakream")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	opts := engine.Options{WALFileBytes: 1 << 20, WALMaxBytes: 4 << 20}

	e, err := engine.Open(dir, opts)
	if err != nil {
		log.Fatal(err)
	}
	createStream(e, "docs", "readme")
	op := &engine.Op{Event: message("hello"), Stream: e.Lookup([]byte("docs"), []byte("readme"))}
	if err := e.Do(op); err != nil {
		log.Fatal(err)
	}
	if err := e.Close(); err != nil {
		log.Fatal(err)
	}

	if e, err = engine.Open(dir, opts); err != nil {
		log.Fatal(err)
	}
	v := e.Lookup([]byte("docs"), []byte("readme")).View()
	fmt.Printf("%s, %d bytes in %d message\n", v.ContentType, v.Next, v.NextRecord)
	if err := e.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: text/plain, 5 bytes in 1 message
}

// A producer's repeat is told from a new write, so that a client may retry whatever
// it got no answer to.
func ExampleEngine_Do() {
	e, done := openExample(engine.Options{})
	defer done()
	createStream(e, "docs", "log")
	ev := message("once")
	ev.Producer = record.Producer{ID: []byte("writer-1"), Epoch: 0, Seq: 0, Set: true}
	for range 2 {
		op := &engine.Op{Event: ev, Stream: e.Lookup([]byte("docs"), []byte("log"))}
		if err := e.Do(op); err != nil {
			log.Fatal(err)
		}
		fmt.Println(op.Answer.Code == core.Appended, op.Answer.Code == core.Duplicate, op.Answer.Start, op.Answer.Next)
	}
	// Output:
	// true false 0 4
	// false true 0 4
}

// Submit does not wait: many operations become durable together, and Done says when.
func ExampleEngine_Submit() {
	e, done := openExample(engine.Options{})
	defer done()
	createStream(e, "docs", "log")
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Add(1)
		op := &engine.Op{Event: message(fmt.Sprintf("line %02d\n", i)), Stream: e.Lookup([]byte("docs"), []byte("log"))}
		op.Done = func(*engine.Op) { wg.Done() }
		if err := e.Submit(op); err != nil {
			log.Fatal(err)
		}
	}
	wg.Wait()
	fmt.Println(e.Lookup([]byte("docs"), []byte("log")).View().Next, "bytes")
	// Output: 800 bytes
}

// A read goes by steps, each of which pins what it holds until the next one.
func ExampleEngine_Read() {
	e, done := openExample(engine.Options{})
	defer done()
	createStream(e, "docs", "log")
	for _, text := range []string{"to be ", "or not ", "to be"} {
		op := &engine.Op{Event: message(text), Stream: e.Lookup([]byte("docs"), []byte("log"))}
		if err := e.Do(op); err != nil {
			log.Fatal(err)
		}
	}
	v := e.Lookup([]byte("docs"), []byte("log")).View()
	var step engine.Step
	defer step.Release()
	for off := v.First; off < v.Next; off = step.End() {
		to, err := e.Fit(context.Background(), v, off, 8, false) // whole messages of at most 8 bytes
		if err != nil {
			log.Fatal(err)
		}
		if err := e.Read(v, off, to, 1<<20, &step); err != nil {
			log.Fatal(err)
		}
		text, err := step.Append(context.Background(), nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %q\n", step.Start(), text)
	}
	// Output:
	// 0 "to be "
	// 6 "or not "
	// 13 "to be"
}

// A fork begins with another stream's bytes and goes its own way.
func ExampleEngine_Submit_fork() {
	e, done := openExample(engine.Options{})
	defer done()
	createStream(e, "docs", "draft")
	write := func(name, text string) {
		op := &engine.Op{Event: message(text), Stream: e.Lookup([]byte("docs"), []byte(name))}
		if err := e.Do(op); err != nil {
			log.Fatal(err)
		}
	}
	write("draft", "It was ")
	fork := &engine.Op{Event: core.Event{Op: core.OpCreate, Bucket: "docs", Name: "second", TTL: -1, Fork: &core.ForkSpec{
		Bucket: "docs", Name: "draft", InheritType: true, InheritLife: true,
	}}}
	if err := e.Do(fork); err != nil {
		log.Fatal(err)
	}
	write("draft", "night.")
	write("second", "morning.")
	for _, name := range []string{"draft", "second"} {
		v := e.Lookup([]byte("docs"), []byte(name)).View()
		text, err := readText(e, v)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(text)
	}
	// Output:
	// It was night.
	// It was morning.
}

// readText reads all of a stream.
func readText(e *engine.Engine, v *engine.View) (string, error) {
	var step engine.Step
	defer step.Release()
	var all []byte
	for off := v.First; off < v.Next; off = step.End() {
		err := e.Read(v, off, v.Next, 1<<20, &step)
		if err == nil {
			all, err = step.Append(context.Background(), all)
		}
		if err != nil {
			return "", err
		}
	}
	return string(all), nil
}

// A live reader registers, looks again, and is woken by what changes afterwards.
func ExampleStream_Watch() {
	woken := make(chan *engine.Stream, 1)
	e, done := openExample(engine.Options{Wake: func(s *engine.Stream) { woken <- s }})
	defer done()
	createStream(e, "docs", "log")
	stream := e.Lookup([]byte("docs"), []byte("log"))

	var reader engine.Watcher
	stream.Watch(&reader)
	defer stream.Unwatch(&reader)
	at := stream.View().Next // nothing that comes later can be missed

	op := &engine.Op{Event: message("news"), Stream: stream}
	if err := e.Do(op); err != nil {
		log.Fatal(err)
	}
	s := <-woken
	s.Woken() // before looking, so that the next change wakes again
	fmt.Println(s.View().Next-at, "new bytes")
	// Output: 4 new bytes
}

// A host with an event loop of its own runs the shards' turns in it.
func ExampleEngine_Turn() {
	rings := make(chan int, 64)
	e, done := openExample(engine.Options{Shards: 2, Ring: func(shard int) { rings <- shard }})
	closed := make(chan struct{})
	go func() { // the loop, until the engine has been closed
		for {
			select {
			case shard := <-rings:
				e.Turn(shard)
			case <-closed:
				return
			}
		}
	}()
	createStream(e, "docs", "log")
	fmt.Println(e.Lookup([]byte("docs"), []byte("log")).View().ContentType)
	done()
	close(closed)
	// Output: text/plain
}
