package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/pflag"
)

const envPrefix = "SNAKREAM_"

// errHelp says that the command line asks for the list of settings, which has been
// printed.
var errHelp = errors.New("help was asked for")

// faults collects everything that is wrong with a configuration.
type faults []string

func (f *faults) addf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// load reads the settings: flags beat the environment, which beats the file. It
// reports every fault at once.
func load(args, environ []string, help io.Writer) (*config, []string, error) {
	c, bad, err := read("serve", args, environ, help)
	if err == nil && len(bad) == 0 {
		bad = c.validate()
	}
	return c, bad, err
}

// read is load without looking at what must hold between settings: a command that only
// looks at a data directory takes the settings of a server, and has not its needs.
func read(command string, args, environ []string, help io.Writer) (*config, []string, error) {
	c := new(config)
	settings := table(c)
	var bad faults
	flags, err := readFlags(command, settings, args, help, &bad)
	if err != nil {
		return nil, nil, err
	}
	env := readEnvironment(settings, environ, &bad)
	file := map[string]string{}
	if name := first(flags["config"], env["config"]); name != "" {
		c.File = name
		file = readFile(settings, name, &bad)
	}
	for i := range settings {
		settings[i].apply(flags, env, file, &bad)
	}
	c.derive()
	return c, bad, nil
}

// apply sets the default and then every value that was given, the strongest last:
// a wrong value is a fault even where a stronger one covers it.
func (s *setting) apply(flags, env, file map[string]string, bad *faults) {
	if err := s.set(s.value); err != nil {
		panic("default of " + s.name + ": " + err.Error())
	}
	for _, source := range []struct {
		values map[string]string
		name   string
	}{{file, "config file: " + s.name}, {env, s.variable()}, {flags, "--" + s.name}} {
		if v, ok := source.values[s.name]; ok {
			if err := s.set(v); err != nil {
				bad.addf("%s: %q: %v", source.name, v, err)
			}
		}
	}
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// readFlags returns the values of the flags that are on the command line.
func readFlags(command string, settings []setting, args []string, help io.Writer, bad *faults) (map[string]string, error) {
	fs := pflag.NewFlagSet(command, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.String("config", "", "TOML file with settings")
	for _, s := range settings {
		fs.String(s.name, s.value, s.usage)
	}
	parseAll(fs, slices.Clone(args), bad, func() {
		fmt.Fprintf(help, "Usage:\n  snakream %s [flags]\n\nFlags:\n%s", command, fs.FlagUsages())
	})
	if asked, _ := fs.GetBool("help"); asked {
		return nil, errHelp
	}
	given := map[string]string{}
	fs.Visit(func(f *pflag.Flag) { given[f.Name] = f.Value.String() })
	return given, nil
}

// parseAll parses args; a flag that does not exist becomes a fault and does not
// hide the next one.
func parseAll(fs *pflag.FlagSet, args []string, bad *faults, help func()) {
	fs.BoolP("help", "h", false, "print this list")
	for {
		err := fs.Parse(args)
		var unknown *pflag.NotExistError
		switch {
		case err == nil:
			if asked, _ := fs.GetBool("help"); asked {
				help()
			}
			for _, a := range fs.Args() {
				bad.addf("unexpected argument %q", a)
			}
			return
		case errors.As(err, &unknown):
			i := slices.IndexFunc(args, func(a string) bool { return names(a, unknown) })
			if i < 0 {
				bad.addf("%v", err)
				return
			}
			bad.addf("unknown flag %s", strings.SplitN(args[i], "=", 2)[0])
			args = dropFlag(args, i)
		default:
			bad.addf("%v", err)
			return
		}
	}
}

// names reports whether an argument is the flag that err is about.
func names(arg string, err *pflag.NotExistError) bool {
	if group := err.GetSpecifiedShortnames(); group != "" {
		return strings.HasPrefix(arg, "-"+group)
	}
	name := "--" + err.GetSpecifiedName()
	return arg == name || strings.HasPrefix(arg, name+"=")
}

// dropFlag removes the flag at i, and the value that seems to follow it.
func dropFlag(args []string, i int) []string {
	n := 1
	if !strings.Contains(args[i], "=") && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
		n = 2
	}
	return slices.Delete(args, i, i+n)
}

// readEnvironment returns the values of the variables with our prefix, by setting.
func readEnvironment(settings []setting, environ []string, bad *faults) map[string]string {
	known := map[string]string{envPrefix + "CONFIG": "config"}
	for i := range settings {
		known[settings[i].variable()] = settings[i].name
	}
	given := map[string]string{}
	for _, line := range environ {
		key, value, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(key, envPrefix) {
			continue
		}
		if name, ok := known[key]; ok {
			given[name] = value
		} else {
			bad.addf("unknown environment variable %s", key)
		}
	}
	return given
}

// readFile returns the values in a TOML file, by setting.
func readFile(settings []setting, name string, bad *faults) map[string]string {
	text, err := os.ReadFile(name)
	if err != nil {
		bad.addf("config file: %v", err)
		return nil
	}
	var keys map[string]any
	if err := toml.Unmarshal(text, &keys); err != nil {
		bad.addf("config file %s: %v", name, err)
		return nil
	}
	given := map[string]string{}
	for _, key := range sortedKeys(keys) {
		if !slices.ContainsFunc(settings, func(s setting) bool { return s.name == key }) {
			bad.addf("config file %s: unknown key %q", name, key)
			continue
		}
		switch v := keys[key].(type) {
		case string:
			given[key] = v
		case int64:
			given[key] = strconv.FormatInt(v, 10)
		default:
			bad.addf("config file %s: %s must be a string or a whole number", name, key)
		}
	}
	return given
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
