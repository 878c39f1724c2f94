package blob

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// Uploads of the same bytes at the same time end in one file with as many references.
func TestConcurrentUploads(t *testing.T) {
	mem, s := newStore(t)
	want := content("the same", 50_000)
	const uploads = 16
	var wg sync.WaitGroup
	errs := make([]error, uploads)
	for i := range uploads {
		wg.Go(func() {
			if _, errs[i] = upload(s, want); errs[i] == nil {
				var got []byte
				if got, errs[i] = read(s, digest(want)); errs[i] == nil && !bytes.Equal(got, want) {
					errs[i] = fmt.Errorf("%d bytes", len(got))
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		must(t, err)
	}
	expectFiles(t, mem, 1)
	d := digest(want)
	for range uploads {
		if n, err := s.Collect(100); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		must(t, s.Unpin(d, 1))
	}
	if n, err := s.Collect(100); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	must(t, s.Close())
}

// While a file is being removed, or named, whoever wants the blob waits for that.
func TestUploadDuringCollect(t *testing.T) {
	for _, kind := range []vfstest.Kind{vfstest.Remove, vfstest.SyncDir} {
		mem, s := newStore(t)
		want := content("again", 1000)
		d := mustUpload(t, s, want)
		must(t, s.Unpin(d, 1))
		reached, gate := make(chan struct{}), make(chan struct{})
		var once sync.Once
		sub := "/" + d.String()[:2]
		mem.SetHook(func(op vfstest.Op) error {
			if op.Kind == kind && strings.Contains(op.Path, sub) {
				once.Do(func() {
					close(reached)
					<-gate
				})
			}
			return nil
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if n, err := s.Collect(100); n != 1 || err != nil {
				t.Error(n, err)
			}
		})
		<-reached
		var again error
		wg.Go(func() { _, again = upload(s, want) })
		runtime.Gosched()
		close(gate)
		wg.Wait()
		must(t, again)
		expect(t, s, want)
		expectFiles(t, mem, 1)
		must(t, s.Close())
		s = open(t, mem.CrashClone(nil), map[Digest]int{d: 1})
		expect(t, s, want)
		must(t, s.Close())
	}
}

// Everybody does everything at once: a blob that somebody refers to can always be read.
func TestConcurrentUse(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	mem, s := newStore(t)
	var clock atomic.Int64
	now := func() base.Millis { return base.Millis(clock.Add(1)) }
	done := make(chan struct{})
	var users, others sync.WaitGroup
	for i := range 6 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		users.Go(func() {
			for range 150 {
				b := content(fmt.Sprint("blob ", rng.IntN(4)), 3000)
				d, err := upload(s, b)
				if err != nil {
					t.Error(err)
					return
				}
				for range rng.IntN(4) {
					if got, err := read(s, d); err != nil || !bytes.Equal(got, b) {
						t.Errorf("%d bytes: %v", len(got), err)
					}
				}
				if rng.IntN(2) == 0 && (!s.Pin(d) || s.Unpin(d, now()) != nil) {
					t.Error("a blob with a reference can't be referred to")
				}
				if err := s.Unpin(d, now()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := s.Collect(now()); err != nil {
				t.Error(err)
			}
			runtime.Gosched()
		}
	})
	others.Go(func() { // who doesn't refer to it may find it or not
		rng := rand.New(rand.NewPCG(seed, 99))
		for {
			select {
			case <-done:
				return
			default:
			}
			b := content(fmt.Sprint("blob ", rng.IntN(4)), 3000)
			if got, err := read(s, digest(b)); err != nil && err != ErrNotFound || err == nil && !bytes.Equal(got, b) {
				t.Errorf("%d bytes: %v", len(got), err)
			}
			runtime.Gosched()
		}
	})
	users.Wait()
	close(done)
	others.Wait()
	if _, err := s.Collect(now()); err != nil {
		t.Fatal(err)
	}
	expectFiles(t, mem, 0)
	if len(s.blobs) > 0 || len(s.idle) > 0 {
		t.Errorf("%d blobs and %d open files are left", len(s.blobs), len(s.idle))
	}
	must(t, s.Close())
}

// The first upload into a directory waits until that is durable, and so does the second.
func TestDirectoryIsDurable(t *testing.T) {
	mem, s := newStore(t)
	// Two contents whose digests begin alike.
	var same [][]byte
	first := map[byte][]byte{}
	for i := 0; len(same) == 0; i++ {
		b := content(fmt.Sprint(i), 10)
		d := digest(b)
		if first[d[0]] != nil {
			same = [][]byte{first[d[0]], b}
		}
		first[d[0]] = b
	}
	reached, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	mem.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.SyncDir && op.Path == testDir {
			once.Do(func() {
				close(reached)
				<-gate
			})
		}
		return nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := upload(s, same[0]); err != nil {
			t.Error(err)
		}
	})
	<-reached
	second := make(chan error, 1)
	wg.Go(func() {
		_, err := upload(s, same[1])
		second <- err
	})
	for range 1000 {
		runtime.Gosched()
	}
	select {
	case <-second:
		t.Error("acknowledged while its directory can be lost")
	default:
	}
	close(gate)
	wg.Wait()
	refs := map[Digest]int{digest(same[0]): 1, digest(same[1]): 1}
	crashed := open(t, mem.CrashClone(nil), refs)
	expect(t, crashed, same[0])
	expect(t, crashed, same[1])
	must(t, crashed.Close())
	must(t, s.Close())
}
