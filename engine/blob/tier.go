package blob

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/snakream/snakream/internal/vfs"
	"github.com/snakream/snakream/segment"
)

// Object is a copy of a blob in the object store. Its bytes are those of the blob's file.
type Object struct {
	Digest Digest
	Number uint64 // of the object; no two ever have the same, and none has 0
	Size   int64  // of the file, in bytes
}

// Remote returns an object as what is read instead of the blob's file. It does no I/O.
type Remote func(o Object) segment.Refetcher

// Pending is a blob of which a copy is to be made. It stays until Saved or GiveUp.
type Pending struct {
	Digest Digest
	Path   string // of the file
	Size   int64  // of the file, in bytes
	made   int    // of the file: entry.made
}

// enlist puts an entry among those of which a copy is to be made, among those whose file
// may go, or among neither. mu is held, but for a start.
func (s *Store) enlist(e *entry) {
	has := e.object.Number != 0
	// A file that is known to be damaged must not take the place of an object.
	lacking := e.file == fileGood && (!has || e.doubted) || e.file == fileDamaged && !has
	switch lacking = lacking && s.remote != nil; { // while a copy is being made it keeps its place
	case lacking && e.unsaved == nil:
		e.unsaved = s.unsaved.PushBack(e)
	case !lacking && e.unsaved != nil:
		s.unsaved.Remove(e.unsaved)
		e.unsaved = nil
	}
	switch mayGo := has && !e.doubted && e.file != fileAbsent; {
	case mayGo && e.evict == nil:
		e.evict = s.lru.PushBack(e)
	case !mayGo && e.evict != nil:
		s.lru.Remove(e.evict)
		e.evict = nil
	}
}

// Unsaved returns at most so many blobs that snapshots refer to and that have no object,
// or one that is in doubt: those that have lacked one for longest, whether or not it was
// tried. Those that the start found are in front, in any order. due, which must not call
// the store, says which may come now; nil: all. Each stays until Saved or GiveUp, and is
// not returned before. One whose file can't be opened is not returned at all: see Lost.
// Without a Remote there is none.
func (s *Store) Unsaved(most int, due func(Digest) bool) (all []Pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := s.unsaved.Front(); at != nil && len(all) < most; at = at.Next() {
		e := at.Value.(*entry)
		if e.saving || e.refs == 0 || e.busy != nil || e.moving != nil || due != nil && !due(e.digest) {
			continue
		}
		e.saving = true
		all = append(all, Pending{Digest: e.digest, Path: s.path(e.digest), Size: e.size, made: e.made})
	}
	return all
}

// OpenFile opens the file that is to be copied, for the caller to verify, read and close.
// A *base.CorruptionError says that this can't be done, and the blob does not come again
// from Unsaved.
func (s *Store) OpenFile(p Pending) (vfs.File, *segment.Segment, error) {
	b, err := s.openFile(p.Digest)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if e := s.blobs[p.Digest]; e != nil {
			s.flawed(e, p.made, fileBroken, err)
		}
		return nil, nil, err
	}
	return b.file, b.seg, nil
}

// Saved says that an object is the copy of a blob, whole and verified; p is done with
// then. Durable on return. An error that matches vfs.ErrNoSpace leaves p as it is, to be
// tried again or given up; any other is final, as of Sync.
func (s *Store) Saved(p Pending, object uint64) error {
	var e *entry
	var wrong error
	err := s.changeLedger(func() []record {
		e = s.blobs[p.Digest]
		if e == nil || !e.saving || object == 0 {
			wrong = fmt.Errorf("object %d of blob %s, of which no copy was asked for", object, p.Digest)
			return nil
		}
		all := []record{{kindSaved, Object{p.Digest, object, p.Size}}}
		if e.made != p.made { // the file was damaged, and the copy may be
			all[0].kind = kindDoubted
		}
		if old := e.object; old.Number != 0 && old.Number != object {
			all = append(all, record{kindOrphaned, old})
		}
		return all
	}, func(all []record) {
		for _, old := range all[1:] {
			s.orphans[old.Number] = &orphan{Object: old.Object, marked: true}
		}
		e.doubted = e.made != p.made // if only since then, whoever replaced the file waits to say so
		e.saving = false
		s.setObject(e, all[0].Object)
		s.enlist(e)
	})
	return errors.Join(err, wrong)
}

// GiveUp says that no copy has come of it. The blob comes again from Unsaved, in the
// place that it had.
func (s *Store) GiveUp(p Pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.blobs[p.Digest]; e != nil && e.saving {
		e.saving = false
	}
}

// Known reports whether the store has, or is to make or remove, a blob.
func (s *Store) Known(d Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blobs[d] != nil
}

// setObject notes which object is a blob's. mu is held, but for a start.
func (s *Store) setObject(e *entry, o Object) {
	if e.object.Number != 0 {
		s.saved--
	}
	if o.Number != 0 {
		s.saved++
	}
	e.object = o
}

// Has reports whether a blob has an object.
func (s *Store) Has(d Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.blobs[d]
	return e != nil && e.object.Number != 0
}

// Lost reports whether a blob has neither an object nor a file that can be opened, as far
// as is known: there is nothing to make a copy of.
func (s *Store) Lost(d Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.blobs[d]
	return e != nil && e.busy == nil && e.object.Number == 0 && (e.file == fileAbsent || e.file == fileBroken)
}

// LocalBytes returns the bytes of the blobs' files that are here. Without a Remote it
// counts only those that have been made since the start.
func (s *Store) LocalBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local
}

// Evict removes files of blobs that have an object and that nobody reads, the one that
// was used longest ago first, until want bytes are freed or there are no more. After an
// error it may be called again.
func (s *Store) Evict(want int64) (freed int64, err error) {
	for freed < want && err == nil {
		e, open := s.nextEvicted()
		if e == nil {
			break
		}
		if open != nil {
			s.closeBlob(open)
		}
		// The name may come back after a power cut. Then there is a file as before, until
		// the blob is removed, which makes sure of that. Part of a file must not come back.
		path := s.path(e.digest)
		err = s.unlink(path, func() error {
			if err := s.fs.SyncDir(filepath.Dir(path)); err != nil {
				return s.journal.fail(err)
			}
			return nil
		})
		s.mu.Lock()
		if err == nil {
			freed += e.size
			s.setFile(e, fileAbsent, 0)
		}
		s.endMove(e)
		s.mu.Unlock()
	}
	return freed, err
}

// nextEvicted returns the blob whose file is to go, which is moving then, and what has to
// be closed before.
func (s *Store) nextEvicted() (*entry, *Blob) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := s.lru.Front(); at != nil; at = at.Next() {
		e := at.Value.(*entry)
		if e.readers > 0 || e.busy != nil || e.moving != nil || e.saving {
			continue
		}
		s.lru.MoveToBack(at) // unless it goes, others come first the next time
		e.moving = make(chan struct{})
		return e, s.detach(e)
	}
	return nil, nil
}

// endMove ends what made an entry moving. mu is held.
func (s *Store) endMove(e *entry) {
	close(e.moving)
	e.moving = nil
	s.enlist(e)
}

// used notes that somebody reads a blob, or did just now. mu is held.
func (s *Store) used(e *entry) {
	if e.evict != nil {
		s.lru.MoveToBack(e.evict)
	}
}

// Orphaned returns the objects that nobody needs any more, in no order: those of blobs
// that have been removed, or that nothing referred to at the start, and those that others
// have taken the place of. They are never needed again, even if the same bytes are. Each
// is returned until Forget.
func (s *Store) Orphaned() (all []Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.orphans {
		if o.marked {
			all = append(all, o.Object)
		}
	}
	return all
}

// Forget says that whoever deletes objects will see to these, which Orphaned has
// returned; others are left as they are. Durable on return. Errors are as of Saved.
func (s *Store) Forget(objs []Object) error {
	return s.changeLedger(func() (all []record) {
		for _, o := range objs {
			if have := s.orphans[o.Number]; have != nil && have.marked {
				all = append(all, record{kindForgotten, have.Object})
			}
		}
		return all
	}, func(all []record) {
		for _, r := range all {
			delete(s.orphans, r.Number)
		}
	})
}

// Objects yields all objects that the store knows of, those that nobody needs too, until
// Forget. In no order.
func (s *Store) Objects(yield func(Object) bool) {
	for _, r := range s.records() {
		if !yield(r.Object) {
			return
		}
	}
}

// records returns what the ledger has to say.
func (s *Store) records() []record {
	s.mu.Lock()
	all := make([]record, 0, s.saved+len(s.orphans))
	for _, e := range s.blobs {
		switch {
		case e.object.Number == 0:
		case e.doubted:
			all = append(all, record{kindDoubted, e.object})
		default:
			all = append(all, record{kindSaved, e.object})
		}
	}
	for _, o := range s.orphans {
		all = append(all, record{kindOrphaned, o.Object})
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b record) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// beginLedger replaces the ledger of the last run, or goes on with it, behind end, where
// there is no space.
func (s *Store) beginLedger(end int64) error {
	all := s.records()
	next, err := startLedger(s.fs, s.dir, all)
	if err == nil {
		s.marked(all)
	} else if errors.Is(err, vfs.ErrNoSpace) {
		next, err = resumeLedger(s.fs, s.dir, end)
	}
	if err == nil {
		s.ledger = next
	}
	return err
}

// marked notes that the ledger says of orphans that they are. mu is held, but for a start.
func (s *Store) marked(all []record) {
	for _, r := range all {
		if o := s.orphans[r.Number]; o != nil && r.kind == kindOrphaned {
			o.marked = true
		}
	}
}

// changeLedger adds the entries that plan returns, durably, and has done note that. Both
// run with mu held, and no other change comes between. An error that matches
// vfs.ErrNoSpace changes nothing; any other is final.
func (s *Store) changeLedger(plan func() []record, done func([]record)) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.journal.failed(); err != nil {
		return err
	}
	s.mu.Lock()
	all := plan()
	s.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	switch err := s.ledger.add(all); {
	case errors.Is(err, vfs.ErrNoSpace):
		return fmt.Errorf("blob ledger: %w", err)
	case err != nil:
		return s.journal.fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	done(all)
	return nil
}

// markOrphans has the ledger say of every orphan that it is one, before anybody learns of
// it: once it has been deleted, the ledger must not name it as the object of a blob that
// has been uploaded again meanwhile.
func (s *Store) markOrphans() error {
	return s.changeLedger(func() (all []record) {
		for o := range maps.Values(s.orphans) {
			if !o.marked {
				all = append(all, record{kindOrphaned, o.Object})
			}
		}
		return all
	}, s.marked)
}

// trimLedger writes the ledger anew when half of it is of no use any more.
func (s *Store) trimLedger() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.journal.failed(); err != nil || s.ledger.end < trimLedger {
		return err
	}
	s.mu.Lock()
	n := int64(s.saved + len(s.orphans))
	s.mu.Unlock()
	if ledgerHeader+2*n*ledgerEntry > s.ledger.end {
		return nil
	}
	all := s.records()
	switch err := s.ledger.trim(all); {
	case errors.Is(err, vfs.ErrNoSpace): // the present one will do
	case err != nil:
		return s.journal.fail(err)
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.marked(all)
	}
	return nil
}
