package engine_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/snakream/snakream/engine"
	"github.com/snakream/snakream/engine/core"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// list returns the names of a page.
func (r *rig) list(bucket, prefix, after string, limit int) (names []string, more bool) {
	page, more := r.List(bucket, prefix, after, limit)
	for _, st := range page {
		_, name := st.Name()
		names = append(names, name)
	}
	return names, more
}

// all pages through a bucket.
func (r *rig) all(bucket, prefix string, limit int) (names []string) {
	r.Helper()
	after := ""
	for {
		page, more := r.list(bucket, prefix, after, limit)
		if len(page) > limit || more && len(page) < limit {
			r.Fatalf("a page of %d names, limit %d, more %t", len(page), limit, more)
		}
		names = append(names, page...)
		if !more {
			return names
		}
		after = page[len(page)-1]
	}
}

// naive is what a page must be.
func naive(names []string, prefix, after string, limit int) (page []string, more bool) {
	for _, n := range names {
		if strings.HasPrefix(n, prefix) && n > after {
			if len(page) == limit {
				return page, true
			}
			page = append(page, n)
		}
	}
	return page, false
}

// Any page of any listing is that of a sorted slice, whatever the number of shards.
func TestList(t *testing.T) {
	seed := seedOf(t)
	for _, shards := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(shards)))
			r := newRig(t, tiny(shards))
			parts := []string{"a", "b", "ab", "é", "日本", "Z", "0", " ", "~", "/", "\x7f", "\xf4\x8f\xbf\xbf", "streams"}
			names := map[string][]string{"jobs": nil, "job": nil, "jobs2": nil}
			for range 600 {
				var name strings.Builder
				for range 1 + rng.IntN(4) {
					name.WriteString(parts[rng.IntN(len(parts))])
				}
				bucket := []string{"jobs", "job", "jobs2"}[rng.IntN(3)]
				if slices.Contains(names[bucket], name.String()) {
					continue
				}
				r.must("", inBucket(bucket, name.String(), false), core.Created)
				names[bucket] = append(names[bucket], name.String())
			}
			for bucket := range names {
				slices.Sort(names[bucket])
			}
			check := func() {
				t.Helper()
				for range 400 {
					bucket := []string{"jobs", "job", "jobs2", "missing"}[rng.IntN(4)]
					prefix, after := "", ""
					if rng.IntN(2) == 0 {
						prefix = parts[rng.IntN(len(parts))]
					}
					if all := names[bucket]; len(all) > 0 && rng.IntN(3) > 0 {
						after = all[rng.IntN(len(all))]
						after = after[:rng.IntN(len(after)+1)]
					}
					limit := 1 + rng.IntN(50)
					got, more := r.list(bucket, prefix, after, limit)
					want, wantMore := naive(names[bucket], prefix, after, limit)
					if !slices.Equal(got, want) || more != wantMore {
						t.Fatalf("prefix %q after %q limit %d of %s:\n%q, more %t, instead of\n%q, %t", prefix, after, limit, bucket, got, more, want, wantMore)
					}
				}
				for bucket, want := range names {
					if got := r.all(bucket, "", 1+rng.IntN(20)); !slices.Equal(got, want) {
						t.Fatalf("%s: %d names instead of %d", bucket, len(got), len(want))
					}
				}
			}
			check()
			r.reopen()
			check()
			for bucket, all := range names {
				kept := all[:0:0]
				for _, name := range all {
					if rng.IntN(3) == 0 {
						r.removeFrom(bucket, name)
					} else {
						kept = append(kept, name)
					}
				}
				names[bucket] = kept
			}
			check()
			r.reopen()
			check()
			r.close()
		})
	}
}

// A listing shows what anybody could read at that moment: nothing that is not durable
// yet, has ended, or is due to end.
func TestListShowsLiveStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tiny(1))
		r.create("stays")
		timed := createEvent("timed")
		timed.TTL = 10
		r.must("", timed, core.Created)
		r.create("source")
		fork := createEvent("fork")
		fork.Fork = &core.ForkSpec{Bucket: "b", Name: "source", InheritLife: true}
		r.must("", fork, core.Created)
		r.remove("source") // only its fork keeps it
		expect := func(want ...string) {
			t.Helper()
			if got, more := r.list("b", "", "", 10); !slices.Equal(got, want) || more {
				t.Fatalf("the list is %q instead of %q", got, want)
			}
		}
		expect("fork", "stays", "timed")
		gate := make(chan struct{})
		r.fs.SetHook(func(op vfstest.Op) error {
			if op.Kind == vfstest.Datasync && strings.HasSuffix(op.Path, ".wal") {
				<-gate
			}
			return nil
		})
		for _, ev := range []core.Event{createEvent("new"), {Op: core.OpDelete}} {
			op := &engine.Op{Event: ev, Stream: r.stream("stays"), Done: func(*engine.Op) {}}
			if err := r.Submit(op); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		expect("fork", "stays", "timed")
		<-time.After(11 * time.Second) // its end waits for the disk
		expect("fork", "stays")
		close(gate)
		synctest.Wait()
		expect("fork", "new")
		r.fs.SetHook(nil)
		r.close()
	})
}

// Whoever pages while streams come and go sees each that stays exactly once, in order.
func TestListWhileStreamsComeAndGo(t *testing.T) {
	r := newRig(t, tiny(3))
	const stay = 300
	for i := range stay {
		r.create(fmt.Sprintf("stays-%03d", i))
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for c := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				name := fmt.Sprintf("stays-%03d-%d", (i*37+c)%stay, c)
				if r.try(name, createEvent(name)).Code == core.Created {
					r.try(name, core.Event{Op: core.OpDelete})
				}
			}
		})
	}
	for range 50 {
		last, n := "", 0
		for _, name := range r.all("b", "", 17) {
			if name <= last {
				t.Errorf("%q after %q", name, last)
			}
			if last = name; strings.Count(name, "-") == 1 {
				n++
			}
		}
		if n != stay {
			t.Errorf("%d of %d names", n, stay)
		}
	}
	close(done)
	wg.Wait()
	r.close()
}

// BenchmarkList asks for pages of 1,000 of a bucket with 1,000,000 streams, the first
// one, one in the middle, one by prefix, and an empty one.
func BenchmarkList(b *testing.B) {
	const streams = 1_000_000
	for _, shards := range []int{1, 4} {
		e, err := engine.Open(b.TempDir(), engine.Options{Shards: shards, Logger: slog.New(slog.DiscardHandler), MinFreeDisk: 1})
		if err != nil {
			b.Fatal(err)
		}
		create(b, e, "name-0000000")
		slots := make(chan struct{}, 10_000)
		for i := 1; i < streams; i++ {
			slots <- struct{}{}
			ev := createEvent(fmt.Sprintf("name-%07d", i))
			if err := e.Submit(&engine.Op{Event: ev, Done: func(*engine.Op) { <-slots }}); err != nil {
				b.Fatal(err)
			}
		}
		for range cap(slots) {
			slots <- struct{}{}
		}
		for _, page := range []struct {
			name, prefix, after string
			want                int
		}{{"first", "", "", 1000}, {"middle", "", "name-0500000", 1000}, {"prefix", "name-00042", "", 100}, {"empty", "x", "", 0}} {
			b.Run(fmt.Sprintf("shards=%d/page=%s", shards, page.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if got, _ := e.List("b", page.prefix, page.after, 1000); len(got) != page.want {
						b.Fatalf("%d streams", len(got))
					}
				}
			})
		}
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
