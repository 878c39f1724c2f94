package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/snakream/snakream/engine/mirror"
)

// However many objects can't be deleted, what is behind them is.
func TestDeletesBehindThoseThatFail(t *testing.T) {
	e := &Engine{}
	e.opts.Now = time.Now
	tr := &tier{e: e, deleting: map[string]bool{}, deleted: map[string]bool{}, deletes: newObjectLane[string]()}
	for i := range 100 {
		key := fmt.Sprintf("%02d", i)
		tr.state.Dead = append(tr.state.Dead, mirror.Dead{Key: key})
		if i < 90 {
			tr.deletes.failed(key)
		}
	}
	if !tr.deletes.doubtful {
		t.Fatal("deletes are not in doubt")
	}
	tr.deletes.succeeded("another") // now all that have failed are due
	fresh := 0
	for range 3 {
		keys := tr.dueDeletes(tierDeletes - len(tr.deleting))
		tries := 0
		for _, key := range keys {
			tr.deleting[key] = true
		}
		for key := range tr.deleting {
			if !tr.deletes.fresh(key) {
				tries++
			}
		}
		if tries != tierDeletes/2 || len(tr.deleting) != tierDeletes {
			t.Fatalf("%d of %d deletes are tries", tries, len(tr.deleting))
		}
		for key := range tr.deleting {
			if tr.deletes.fresh(key) { // they work, and the others don't come to an end
				delete(tr.deleting, key)
				tr.deleted[key] = true
				fresh++
			}
		}
		if fresh == 8 {
			break
		}
	}
	if fresh < 8 {
		t.Errorf("%d deletes were not tries", fresh)
	}
}
