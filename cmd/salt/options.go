package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	op "saltern/cmd/salt/optparse"
)

var logLevels = []string{"all", "garbage", "trace", "debug", "profile", "info", "warning", "error",
	"critical", "fatal", "quiet"}

// parser returns a parser for a tool, with the options that all tools have.
func (e *env) parser(prog, usage, text string) *op.Parser {
	dir := e.getenv("SALT_CONFIG_DIR")
	if dir == "" {
		dir = configDir("/etc/salt", "/var/lib/saltern/etc/salt")
	}

	return &op.Parser{
		Prog:   prog,
		Usage:  usage,
		Text:   text,
		Epilog: "The options are those of Salt's " + prog + ".",
		Options: []op.Option{
			{Names: []string{"--version"}, Help: "Print the version and exit."},
			{Names: []string{"-V", "--versions-report"}, Help: "Print the versions of the parts and exit."},
			{Names: []string{"-h", "--help"}, Help: "Print this help and exit."},
			{
				Names: []string{"--saltfile"},
				Kind:  op.Text,
				Help:  "A file with defaults for the options. Without it, a file named Saltfile in the working directory is read.",
			},
			{
				Names:   []string{"-c", "--config-dir"},
				Kind:    op.Text,
				Default: dir,
				Help:    "The directory of the configuration. Default: '%default'.",
			},
			{Names: []string{"--hard-crash"}, Default: false, Help: "Accepted for compatibility."},
		},
	}
}

// packagesFile is the only file that Saltern's packages install in Salt's configuration directory.
// If the directory has only this file, there may be no Salt master on this host: a node of an
// appliance also has the file.
const packagesFile = "saltern.conf"

// configDir returns the default configuration directory: saltDir, which is Salt's directory, or
// nodeDir, the directory of the appliance's node on this machine.
func configDir(saltDir, nodeDir string) string {
	if _, err := os.Stat(filepath.Join(saltDir, "master")); !errors.Is(err, fs.ErrNotExist) {
		return saltDir
	}

	parts, err := os.ReadDir(filepath.Join(saltDir, "master.d"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return saltDir
	}

	for _, p := range parts {
		if p.Name() != packagesFile && strings.HasSuffix(p.Name(), ".conf") {
			return saltDir
		}
	}

	if _, err := os.Stat(filepath.Join(nodeDir, "master")); err != nil {
		return saltDir
	}

	return nodeDir
}

// logOptions returns the options about logs. short is "-l", or "" for tools where -l means
// something else. file is the configuration's name of the log file.
func logOptions(short, file string) op.Group {
	names := []string{"--log-level"}
	if short != "" {
		names = []string{short, "--log-level"}
	}

	return op.Group{
		Title: "Logging Options",
		Text:  "They come before what the configuration says.",
		Options: []op.Option{
			{
				Names:   names,
				Kind:    op.Choice,
				Choices: logLevels,
				Help: "How much is written to the terminal: " + strings.Join(logLevels, ", ") +
					". Default: 'warning'.",
			},
			{
				Names: []string{"--log-file"},
				Dest:  file,
				Kind:  op.Text,
				Help:  "A file, or the URL of a syslog, that gets the tool's log as well.",
			},
			{
				Names:   []string{"--log-file-level"},
				Dest:    "log_level_logfile",
				Kind:    op.Choice,
				Choices: logLevels,
				Help:    "How much is written to the log file. Default: as much as to the terminal.",
			},
		},
	}
}

func outputOptions(prog string) op.Group {
	return op.Group{Title: "Output Options", Text: "How results look.", Options: []op.Option{
		{
			Names: []string{"--out", "--output"},
			Dest:  "output",
			Kind:  op.Text,
			Help: "Print the results of " + prog +
				" in this form: nested, highstate, json, yaml, txt, raw, pprint, table, profile, newline_values_only, quiet, or an outputter of your own.",
		},
		{
			Names: []string{"--out-indent", "--output-indent"},
			Dest:  "output_indent",
			Kind:  op.Int,
			Help:  "Columns per level in json, yaml and pprint; a negative number puts everything on one line.",
		},
		{
			Names: []string{"--out-file", "--output-file"},
			Dest:  "output_file",
			Kind:  op.Text,
			Help:  "Write the results to this file.",
		},
		{
			Names:   []string{"--out-file-append", "--output-file-append"},
			Dest:    "output_file_append",
			Default: false,
			Help:    "Keep what the file has.",
		},
		{Names: []string{"--no-color", "--no-colour"}, Default: false, Help: "No colors."},
		{
			Names:   []string{"--force-color", "--force-colour"},
			Default: false,
			Help:    "Colors even when the output is no terminal.",
		},
		{
			Names: []string{"--state-output", "--state_output"},
			Dest:  "state_output",
			Kind:  op.Text,
			Help:  "How states are shown: full, terse, mixed, changes or filter. Default: %default.",
		},
		{
			Names: []string{"--state-verbose", "--state_verbose"},
			Dest:  "state_verbose",
			Kind:  op.Text,
			Help:  "Whether states without changes are shown: True or False. Default: %default.",
		},
	}}
}

func timeoutOption(seconds int) op.Option {
	return op.Option{
		Names:   []string{"-t", "--timeout"},
		Kind:    op.Int,
		Default: seconds,
		Help:    "Seconds to wait for an answer before asking whether the job still runs. Default: %default.",
	}
}

func targetOptions(extended bool) []op.Group {
	flag := func(short, long, dest, help string) op.Option {
		return op.Option{Names: []string{short, long}, Dest: dest, Default: false, Help: help}
	}
	g := op.Group{
		Title: "Target Options",
		Text:  "What the target is; without one of these it is a shell pattern.",
		Options: []op.Option{
			flag("-H", "--hosts", "list_hosts", "Accepted for compatibility."),
			flag("-E", "--pcre", "pcre", "A regular expression."),
			flag("-L", "--list", "list", "Names separated by commas or blanks."),
			flag("-G", "--grain", "grain", "A grain and a pattern for its value: os:Arch*."),
			flag("-P", "--grain-pcre", "grain_pcre", "A grain and a regular expression for its value: os:Arch.*."),
			flag("-N", "--nodegroup", "nodegroup", "The name of a group in the configuration."),
			flag("-R", "--range", "range", "A range expression (not supported)."),
		},
	}

	if extended {
		g.Options = append(g.Options,
			flag("-C", "--compound", "compound", "An expression of several kinds: 'G@os:RedHat and web* or E@db.*'."),
			flag("-I", "--pillar", "pillar_target", "A pillar key and a pattern for its value: role:prod*."),
			flag("-J", "--pillar-pcre", "pillar_pcre",
				"A pillar key and a regular expression for its value: role:prod.*."),
			flag("-S", "--ipcidr", "ipcidr", "A network (10.0.0.0/8) or an address."))
	}

	return []op.Group{g, {Title: "Additional Target Options", Options: []op.Option{
		{
			Names:   []string{"--delimiter"},
			Kind:    op.Text,
			Default: ":",
			Help:    "What separates the levels of a key. Default: '%default'.",
		},
	}}}
}

func eauthOptions() op.Group {
	return op.Group{Title: "External Authentication", Options: []op.Option{
		{
			Names:   []string{"-a", "--auth", "--eauth", "--external-auth"},
			Dest:    "eauth",
			Kind:    op.Text,
			Default: "",
			Help:    "Authenticate by this external system.",
		},
		{
			Names:   []string{"-T", "--make-token"},
			Dest:    "mktoken",
			Default: false,
			Help:    "Get a token and keep it for the next calls.",
		},
		{Names: []string{"--username"}, Kind: op.Text, Help: "User for the external system."},
		{Names: []string{"--password"}, Kind: op.Text, Help: "Password for the external system."},
	}}
}

func noParseOption(getenv func(string) string) op.Option {
	return op.Option{
		Names:   []string{"--no-parse"},
		Kind:    op.Text,
		Default: getenv("SALT_NO_PARSE"),
		Metavar: "argname1,argname2,...",
		Help:    "Keyword arguments whose values are taken as text.",
	}
}

var argsStdin = op.Option{
	Names:   []string{"--args-stdin"},
	Default: false,
	Help:    "Read more options and arguments from standard input, one per line.",
}

// targetType returns the chosen type of target, or "" for a glob.
func targetType(v *op.Values, groups []op.Group) (string, error) {
	var names, chosen []string
	for _, o := range groups[0].Options {
		if !v.Bool(o.Dst()) {
			continue
		}

		typ := o.Dst()
		if typ == "pillar_target" {
			typ = "pillar"
		}

		chosen = append(chosen, typ)
		names = append(names, o.Names[1])
	}

	switch len(chosen) {
	case 0:
		return "", nil
	case 1:
		if chosen[0] == "list_hosts" {
			return "", nil
		}
		return chosen[0], nil
	}

	return "", op.Error("The options " + strings.Join(names, "/") +
		" are mutually exclusive. Please only choose one of them")
}
