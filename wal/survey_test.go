package wal

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/snakream/snakream/internal/base"
	"github.com/snakream/snakream/internal/vfs/vfstest"
)

// surveyed runs Survey, which must change nothing, and prints the records of the log.
func (l *lab) surveyed(low Position) (records []string, behind int, info Info, end Ending, err error) {
	l.t.Helper()
	l.fs.StartTrace()
	info, end, err = Survey(l.fs, labDir, low, func(i Item) error {
		if i.Behind {
			behind++
		} else {
			records = append(records, show(i.Record))
		}
		return nil
	})
	if trace := l.fs.Trace(); len(trace) > 0 {
		l.t.Errorf("Survey changed something: %q", trace)
	}
	return records, behind, info, end, err
}

// cut makes the log end where the survey says.
func (l *lab) cut(end Ending) {
	l.t.Helper()
	for _, path := range end.Behind {
		if err := l.fs.Remove(path); err != nil {
			l.t.Fatal(err)
		}
	}
	if end.Path == "" {
		if err := Create(l.cfg); err != nil {
			l.t.Fatal(err)
		}
		return
	}
	if err := l.fs.Corrupt(end.Path, end.Offset, func(b []byte) { clear(b) }); err != nil {
		l.t.Fatal(err)
	}
}

// long makes a closed log of three files, the last with a torn batch, and returns a
// low-water in the middle of the first.
func long(t *testing.T) (l *lab, low Position) {
	t.Helper()
	l = newLab(t)
	l.batch("one", "two|body")
	low = l.batch("three")
	for range 2 {
		l.fill()
		l.batch("first", "of a file")
		l.work()
	}
	l.batch("torn", "torn|too")
	if err := l.log.Close(); err != nil {
		t.Fatal(err)
	}
	l.damage(3, 2*block+RecordBytes(4, 0), flip)
	return l, low
}

// Whatever is wrong with a log: Survey says what Open says, and a log that is cut where
// Survey says opens with exactly the records that Survey has found.
func TestSurveyAgreesWithOpen(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	l, low := long(t)
	whole := l.fs
	for round := range 400 {
		l.fs = whole.Clone()
		l.cfg.FS = l.fs
		for range rng.IntN(3) {
			n := 1 + rng.Uint64N(4)
			path := filePath(labDir, n, suffixLog)
			switch k := rng.IntN(8); {
			case k == 0:
				_ = l.fs.Remove(path) // it may be gone already
			case k < 4:
				_ = l.fs.Corrupt(path, rng.Int64N(block), flip)
			default:
				_ = l.fs.Corrupt(path, rng.Int64N(16)*block, flip)
			}
		}
		from := Position{}
		if round%2 == 0 {
			from = low
		}
		records, _, info, end, surveyErr := l.surveyed(from)
		openErr := l.open(from)
		if openErr == nil {
			if err := l.log.Close(); err != nil {
				t.Fatal(err)
			}
		}
		damage, _ := errors.AsType[*base.CorruptionError](surveyErr)
		if (surveyErr == nil) != (openErr == nil) || surveyErr != nil && damage == nil && !errors.As(openErr, new(*base.VersionError)) {
			t.Fatalf("Survey: %v\nOpen: %v", surveyErr, openErr)
		}
		if surveyErr == nil && !slices.Equal(records, l.replayed) {
			t.Fatalf("Survey found %q, Open %q", records, l.replayed)
		}
		if damage == nil {
			continue
		}
		if end.Path == "" && end.Behind == nil {
			if names, err := l.fs.List(labDir); err != nil || slices.ContainsFunc(names, func(n string) bool { _, ok := parseName(n, suffixLog); return ok }) {
				t.Fatalf("%v, and no way to cut it: %v, %v", surveyErr, names, err)
			}
			continue
		}
		l.cut(end)
		if err := l.open(from); err != nil {
			t.Fatalf("%v; cut at %s, %d, without %v: %v", surveyErr, end.Path, end.Offset, end.Behind, err)
		}
		want := info.End
		if end.Path == "" || want.Batch < from.Batch {
			want = from
		}
		if !slices.Equal(l.replayed, records) || l.info.End != want {
			t.Fatalf("%v: after the cut %q up to %v, want %q up to %v", surveyErr, l.replayed, l.info.End, records, want)
		}
		if err := l.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What was behind the damage is told, payloads and all.
func TestSurveyTellsWhatIsLost(t *testing.T) {
	l, _ := long(t)
	l.damage(2, block+3, flip) // the first batch of the second file
	var lost []Record
	_, end, err := Survey(l.fs, labDir, Position{}, func(i Item) error {
		if i.Behind && i.Head != nil {
			lost = append(lost, i.Record)
		}
		return nil
	})
	if !errors.As(err, new(*base.CorruptionError)) {
		t.Fatal(err)
	}
	// The file lost its first record; the second of the same batch has no boundary of
	// its own to be found at.
	if end.Path != filePath(labDir, 1, suffixLog) || len(end.Behind) != 3 {
		t.Errorf("the log would end in %s at %d without %v", end.Path, end.Offset, end.Behind)
	}
	if n := len(lost); n < 10 || lost[n-1].LSN < lost[0].LSN {
		t.Errorf("%d records behind the damage", n)
	}
}

func TestSurveyNothing(t *testing.T) {
	l := labOn(t, vfstest.New())
	if _, _, _, end, err := l.surveyed(Position{}); !errors.As(err, new(*base.CorruptionError)) || end.Path != "" || end.Behind != nil {
		t.Errorf("no directory: %+v, %v", end, err)
	}
	l = newLab(t)
	l.damage(1, 20, flip)
	l.damage(2, 20, flip)
	if _, _, _, end, err := l.surveyed(Position{}); !errors.As(err, new(*base.CorruptionError)) || len(end.Behind) != 2 {
		t.Errorf("nothing but damaged headers: %+v, %v", end, err)
	}
}
