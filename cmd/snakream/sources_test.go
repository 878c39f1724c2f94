package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// configured loads settings as a command line, an environment and a file give them.
func configured(t *testing.T, args, environ []string, file string) (*config, []string) {
	t.Helper()
	if file != "" {
		name := filepath.Join(t.TempDir(), "snakream.toml")
		if err := os.WriteFile(name, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", name)
	}
	c, faults, err := load(args, environ, new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	return c, faults
}

func TestDefaultsAreInOrder(t *testing.T) {
	c, faults := configured(t, nil, nil, "")
	if len(faults) > 0 {
		t.Fatalf("defaults are refused: %q", faults)
	}
	if c.Listen != "127.0.0.1:4437" || c.AdminListen != "127.0.0.1:4438" || c.DataDir != "./data" {
		t.Errorf("got %s, %s, %s", c.Listen, c.AdminListen, c.DataDir)
	}
	if c.Server.LongPollTimeout != 20*time.Second || c.Server.MaxBodyBytes != 32<<20 {
		t.Errorf("got %v, %d", c.Server.LongPollTimeout, c.Server.MaxBodyBytes)
	}
}

func TestFlagsBeatEnvironmentBeatsFile(t *testing.T) {
	file := "listen = \"1.1.1.1:1\"\nadmin-listen = \"1.1.1.1:2\"\ndata-dir = \"/file\"\nmax-connections = 7\n"
	environ := []string{"PATH=/bin", "SNAKREAM_LISTEN=2.2.2.2:1", "SNAKREAM_ADMIN_LISTEN=2.2.2.2:2"}
	c, faults := configured(t, []string{"--listen=3.3.3.3:1"}, environ, file)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if c.Listen != "3.3.3.3:1" || c.AdminListen != "2.2.2.2:2" || c.DataDir != "/file" || c.Server.MaxConnections != 7 {
		t.Errorf("got %s, %s, %s, %d", c.Listen, c.AdminListen, c.DataDir, c.Server.MaxConnections)
	}
}

// Every fault is reported, not only the first (field report 149).
func TestField149EveryFaultAtOnce(t *testing.T) {
	args := []string{"--lisen", "x:1", "--max-body-bytes=12Q", "--sse-hartbeat=1s", "--log-format", "xml", "stray"}
	environ := []string{"SNAKREAM_DATADIR=/x", "SNAKREAM_IDLE_TIMEOUT=soon"}
	file := "cors-orign = \"*\"\npollers = 1.5\nshards = -1\n"
	_, faults := configured(t, args, environ, file)
	all := strings.Join(faults, "\n")
	for _, want := range []string{
		"unknown flag --lisen", "--max-body-bytes", "unknown flag --sse-hartbeat", "--log-format", `"stray"`,
		"SNAKREAM_DATADIR", "SNAKREAM_IDLE_TIMEOUT", `"cors-orign"`, "pollers must be", "shards",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in:\n%s", want, all)
		}
	}
	if len(faults) != 10 {
		t.Errorf("%d faults, want 10:\n%s", len(faults), all)
	}
}

func TestSettingsThatContradictEachOther(t *testing.T) {
	for _, args := range [][]string{
		{"--max-inflight-body-bytes=1MiB"},
		{"--sse-heartbeat=30s", "--sse-max-duration=20s"},
		{"--listen=127.0.0.1:1", "--admin-listen=127.0.0.1:1"},
		{"--max-state-bytes=1000TiB"},
		{"--max-body-bytes=64MiB"},
	} {
		if _, faults := configured(t, args, nil, ""); len(faults) == 0 {
			t.Errorf("%q is accepted", args)
		}
	}
}

func TestUnreadableFileIsAFault(t *testing.T) {
	_, faults := configured(t, []string{"--config", filepath.Join(t.TempDir(), "none.toml")}, nil, "")
	if len(faults) != 1 {
		t.Errorf("got %q", faults)
	}
	if _, faults = configured(t, nil, nil, "listen = \n"); len(faults) != 1 {
		t.Errorf("broken TOML: got %q", faults)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "12B": 12, "64MiB": 64 << 20, "64 MiB": 64 << 20, "5KB": 5000, "1TiB": 1 << 40,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5MiB", "MiB", "1Mib", "9223372036854775808", "9223372036854775807KiB", "+1", "0x10"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}

func TestBadUsageExitsWith2(t *testing.T) {
	for _, args := range [][]string{nil, {"run"}, {"serve", "--nonsense"}, {"version", "please"}} {
		var out, errs bytes.Buffer
		if code := run(args, nil, &out, &errs); code != exitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
		if errs.Len() == 0 {
			t.Errorf("%q: nothing is said", args)
		}
	}
}

func TestHelpAndVersionExitWith0(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"version"}, {"serve", "--help"}} {
		var out, errs bytes.Buffer
		if code := run(args, nil, &out, &errs); code != exitOK || out.Len() == 0 {
			t.Errorf("%q: exit code %d, output %q, errors %q", args, code, &out, &errs)
		}
	}
}
