package main

import (
	"errors"
	"time"
)

// A run has to be longer than some flush intervals.
const (
	tierWarmup   = 10 * time.Second
	tierDuration = 40 * time.Second
)

// tierLoad is appendLoad, long enough for a tier to take part, and with what the tier
// did meanwhile. Servers without one have zeros there.
type tierLoad struct{ appendLoad }

func (t tierLoad) label() string { return "tier, " + t.appendLoad.label() }

func (t tierLoad) run(s *server) ([]metric, error) {
	metrics, err := t.appendLoad.run(s)
	if err != nil {
		return nil, err
	}
	puts, err := s.counter("snakream_tier_puts_total")
	bytes, err2 := s.counter("snakream_tier_put_bytes_total")
	st, err3 := s.tier()
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	if st == nil {
		st = new(tierStatus)
	} else if puts == 0 && t.warmup+t.duration > 15*time.Second {
		return nil, errors.New("nothing was put into the tier")
	}
	return append(metrics,
		metric{"puts", "", puts},
		metric{"put", "MiB", bytes / (1 << 20)},
		metric{"exposed", "MiB", mebibytes(st.ExposedBytes)}), nil
}
