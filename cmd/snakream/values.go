package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// units are the suffixes that a size may have. Powers of two and of ten differ by
// their spelling, as everywhere.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"B", 1},
}

// parseSize reads a size in bytes: a whole number, with or without a unit.
func parseSize(s string) (int64, error) {
	digits, unit := s, int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0, errors.New("not a size such as 1048576 or 64MiB")
	}
	if int64(n) > math.MaxInt64/unit {
		return 0, errors.New("too large")
	}
	return int64(n) * unit, nil
}

// size stores a size that lies in [low, high].
func size(to *int64, low, high int64) func(string) error {
	return func(s string) error {
		n, err := parseSize(s)
		if err != nil {
			return err
		}
		if n < low || n > high {
			return fmt.Errorf("must be between %d and %d bytes", low, high)
		}
		*to = n
		return nil
	}
}

// orDefault stores 0, which leaves the value to the program, or what set accepts.
func orDefault[T int | int64](to *T, set func(string) error) func(string) error {
	return func(s string) error {
		if s == "0" {
			*to = 0
			return nil
		}
		return set(s)
	}
}

// count stores a whole number that lies in [low, high].
func count(to *int, low, high int) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			return errors.New("not a whole number")
		}
		if int(n) < low || int(n) > high {
			return fmt.Errorf("must be between %d and %d", low, high)
		}
		*to = int(n)
		return nil
	}
}

// span stores a duration that lies in [low, high].
func span(to *time.Duration, low, high time.Duration) func(string) error {
	return func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return errors.New("not a duration such as 20s or 500ms")
		}
		if d < low || d > high {
			return fmt.Errorf("must be between %v and %v", low, high)
		}
		*to = d
		return nil
	}
}

// oneOf stores a word of a list.
func oneOf(to *string, words ...string) func(string) error {
	return func(s string) error {
		for _, w := range words {
			if s == w {
				*to = s
				return nil
			}
		}
		return fmt.Errorf("must be one of %s", strings.Join(words, ", "))
	}
}

// address stores host:port. The host may be empty, which means every interface.
func address(to *string) func(string) error {
	return func(s string) error {
		_, port, err := net.SplitHostPort(s)
		if err != nil {
			return errors.New("not an address such as 127.0.0.1:4437")
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
			return errors.New("the port must be a number below 65536")
		}
		*to = s
		return nil
	}
}

// path stores the name of a file or directory.
func path(to *string) func(string) error {
	return func(s string) error {
		if s == "" || strings.ContainsRune(s, 0) {
			return errors.New("not a path")
		}
		*to = s
		return nil
	}
}

// publicURL stores the beginning of absolute URLs, or nothing.
func publicURL(to *string) func(string) error {
	return func(s string) error {
		if s == "" {
			*to = ""
			return nil
		}
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return errors.New("not a URL such as https://streams.example.com")
		}
		if u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.ContainsAny(s, "\r\n\t ") {
			return errors.New("must have no query, fragment or user")
		}
		*to = strings.TrimSuffix(s, "/")
		return nil
	}
}

// origin stores a value of Access-Control-Allow-Origin: "*" or one origin.
func origin(to *string) func(string) error {
	return func(s string) error {
		u, err := url.Parse(s)
		if s != "*" && s != "null" && (err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != s) {
			return errors.New(`not "*" or an origin such as https://app.example.com`)
		}
		*to = s
		return nil
	}
}

// level stores a log level.
func level(to *slog.Level) func(string) error {
	return func(s string) error {
		switch s {
		case "debug", "info", "warn", "error":
			return to.UnmarshalText([]byte(s))
		}
		return errors.New("must be one of debug, info, warn, error")
	}
}
