package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"saltern/cmd/internal/saltfile"
	op "saltern/cmd/salt/optparse"
	"saltern/internal/control"
	"saltern/internal/durable"
	"saltern/internal/printable"
	"saltern/internal/release"
	"saltern/master/client"
	"saltern/master/conf"
	"saltern/master/output"
	"saltern/master/saltlog"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// tool is a call of a tool: its command line and configuration.
type tool struct {
	*env
	optionParser *op.Parser
	values       *op.Values
	args         []string
	cfg          *conf.Master
	raw          *value.Map     // all options of the configuration
	log          *slog.Logger   // the terminal, and the log file if there is one
	fileLog      *slog.Logger   // the log file alone; nil: there is none
	logFile      saltlog.Target // closed by exitCode; nil: there is none
	input        *bufio.Reader
	static       bool   // --static was given (Salt's get_printout uses it)
	fun          string // the called function, on which the default outputter depends
	// partial means that the configuration is only the excerpt for users who may not read the
	// master's configuration.
	partial bool
	words   []string      // the command line, including words from standard input
	pinned  bool          // a Saltfile has set options
	python  *pythonOutput // formats values for outputters in Python; nil until needed
}

// exit ends a tool early with a code.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// startTool parses the command line and reads the configuration. If the returned tool is nil, the
// call ends with the returned exit code.
func (e *env) startTool(p *op.Parser, words []string, stdinArgs bool) (*tool, int) {
	t := &tool{env: e, optionParser: p, input: bufio.NewReader(e.stdin), words: words}
	var err error
	t.values, t.args, err = p.Parse(words)
	switch {
	case err == nil && e.other != nil:
		err = t.checkPortable()
	case err == nil && stdinArgs && t.values.Bool("args_stdin"):
		err = t.moreArgs(words)
	}

	if err != nil {
		return nil, t.failUsage(err)
	}

	switch {
	case t.values.Bool("help"):
		fmt.Fprint(e.stdout, p.Help(e.columns))
		return nil, exitOK
	case t.values.Bool("version"):
		fmt.Fprintln(e.stdout, p.Prog+" "+version())
		return nil, exitOK
	case t.values.Bool("versions_report"):
		fmt.Fprint(e.stdout, release.VersionsReport())
		return nil, exitOK
	}

	if err := t.saltfile(); err != nil {
		return nil, t.failUsage(err)
	}

	if err := t.configure(); err != nil {
		fmt.Fprintf(e.stderr, "%s: error: %v\n", p.Prog, err)
		return nil, exitUsage
	}

	if err := t.openGivenLogFile(); err != nil {
		return nil, t.exitCode(err)
	}

	return t, -1
}

// failUsage prints an error of the command line as optparse does, and returns the exit code.
func (t *tool) failUsage(err error) int {
	fmt.Fprintf(t.stderr, "%s\n%s: error: %v\n", t.optionParser.UsageLine(), t.optionParser.Prog, err)
	return exitUsage
}

// maxStdinArgs bounds the arguments on standard input, in bytes.
const maxStdinArgs = 64 << 20

const maxNoMaster = 4 << 10 // bytes of [control.NoMasterFile]

func (t *tool) moreArgs(words []string) error {
	b, err := io.ReadAll(io.LimitReader(t.input, maxStdinArgs))
	if err != nil {
		return op.Error(err.Error())
	}
	for l := range strings.Lines(string(b)) {
		words = append(words, strings.TrimRight(l, "\r\n"))
	}
	t.words = words
	t.values, t.args, err = t.optionParser.Parse(words)
	return err
}

func (t *tool) configure() error {
	dir := t.values.Str("config_dir")
	if rest, ok := strings.CutPrefix(dir, "~"); ok && (rest == "" || rest[0] == '/') {
		dir = t.getenv("HOME") + rest
	}

	if t.other != nil {
		dir = t.other.conf
	}

	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		fmt.Fprintf(t.stderr, "WARNING: CONFIG '%s' directory does not exist.\n", dir)
	}

	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}

	if why, _, err := durable.ReadFile(filepath.Join(dir, control.NoMasterFile), maxNoMaster,
		durable.Follow); err == nil {
		return errors.New(printable.Line(strings.TrimSpace(string(why))))
	}

	if t.cfg, err = loadConf(dir); err != nil {
		return err
	}

	t.raw = t.cfg.Raw
	t.partial = filepath.Dir(t.cfg.Path) != dir
	for o := range t.optionParser.All {
		d := o.Dst()
		if x, ok := t.raw.Get(d); ok && x != nil && !t.values.Explicit(d) && d != "config_dir" {
			t.values.Set(d, x)
		}
	}

	t.log = newLog(t.stderr, t.values.Str("log_level"), t.values.Str("output") == "yaml")
	return nil
}

// loadConf reads the master's configuration. If the user may not read it, loadConf reads the
// excerpt that an appliance keeps in the configuration's folder client.
func loadConf(dir string) (*conf.Master, error) {
	l := &conf.Loader{Tool: true}
	cfg, err := l.Load(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return cfg, err
	}
	client := filepath.Join(dir, "client")
	if _, serr := os.Stat(filepath.Join(client, "master")); serr != nil {
		return nil, fmt.Errorf("%w; only root, the master's user and its group read the master's configuration", err)
	}
	return l.Load(client)
}

// saltfile applies a Saltfile's defaults for the options (salt/utils/parsers.py SaltfileMixIn).
func (t *tool) saltfile() error {
	if t.other != nil {
		return nil
	}

	path := saltfile.Find(t.values.Str("saltfile"), t.getenv("SALT_SALTFILE"), cmp.Or(t.getenv("HOME"), "."))
	if path == "" {
		return nil
	}

	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return op.Error("'" + path + "' file does not exist.")
	}
	if err != nil {
		return op.Error(err.Error())
	}

	v, err := saltyaml.Decode(b, path)
	if err != nil {
		return op.Error(err.Error())
	}

	m, _ := v.(*value.Map)
	for k, x := range m.Map(t.optionParser.Prog).All() {
		if name, ok := k.(string); ok && !t.values.Explicit(name) {
			t.values.Pin(name, x)
			t.pinned = true
		}
	}

	return nil
}

// client returns a client of the configured master.
func (t *tool) client(timeout time.Duration) *client.Client {
	return client.New(client.Config{
		Interface:    t.cfg.Interface,
		RetPort:      t.cfg.RetPort,
		SockDir:      t.cfg.SockDir,
		CacheDir:     t.cfg.CacheDir,
		MasterUser:   t.cfg.User,
		Timeout:      timeout,
		Gather:       t.cfg.GatherJobTimeout,
		Publish:      t.cfg.PublishTimeout,
		HashType:     t.cfg.HashType,
		ExtCache:     t.cfg.ExtJobCache,
		Nodegroups:   t.cfg.Nodegroups,
		ConfFile:     t.cfg.Path,
		LowerMasters: t.cfg.OrderMasters,
		SyndicWait:   t.cfg.SyndicWait,
		User:         t.askingUser(),
		OldFiles:     t.oldFiles(),
		Log:          t.log,
	})
}

// outputOptions returns the options for package output.
func (t *tool) outputOptions() output.Options {
	o := output.Defaults()
	o.Terminal = t.terminal
	on := func(name string) bool { b, _ := t.raw.Get(name); x, _ := b.(bool); return x }
	c, set := t.raw.Get("color")
	switch {
	case t.values.Bool("force_color") || on("force_color"):
		o.Color = true
	case t.values.Bool("no_color") || on("no_color"):
	case set:
		o.Color, _ = c.(bool)
	default:
		o.Color = t.terminal
	}

	if c, ok := t.raw.Get("strip_colors"); ok {
		o.StripEscapes, _ = c.(bool)
	}

	switch n := t.values.Get("output_indent").(type) {
	case int:
		o.Indent = output.Indent{Set: true, Width: n}
	case int64:
		o.Indent = output.Indent{Set: true, Width: int(n)}
	case string:
		o.Indent = output.Indent{Set: true, Pretty: n == "pretty", Width: 4}
	}

	if s := t.values.Str("state_output"); s != "" {
		o.StateOutput = s
	}

	switch b := t.values.Get("state_verbose").(type) {
	case bool:
		o.StateVerbose = b
	case string:
		o.StateVerbose = b != "False" && b != "false" && b != ""
	}

	o.StateDiff = t.values.Bool("state_output_diff") || on("state_output_diff")
	if _, ok := t.raw.Get("state_output_profile"); ok {
		o.StateProfile = on("state_output_profile")
	}

	o.StatePercent, o.StateCompress = on("state_output_pct"), on("state_compress_ids")
	if x, ok := t.raw.Get("state_tabular"); ok {
		o.StateTabular = x != nil && x != false
	}

	o.Table = map[string]any{}
	for k, x := range t.raw.All() {
		if name, ok := strings.CutPrefix(value.Str(k), "out.table."); ok {
			o.Table[name] = x
		}
	}

	o.StateExclude, o.StateTerse = textList(t.raw, "state_output_exclude"), textList(t.raw, "state_output_terse")
	return o
}

// textList returns the texts in an option that is a list of texts, or one text with commas.
func textList(m *value.Map, name string) []string {
	switch v, _ := m.Get(name); v := v.(type) {
	case string:
		return strings.Split(v, ",")
	case []any:
		var out []string
		for _, e := range v {
			out = append(out, value.Str(e))
		}
		return out
	}
	return nil
}

// display prints a value with the outputter that the command line names, otherwise with outputter
// (salt/output/__init__.py display_output).
func (t *tool) display(v any, outputter string, retcode int64, o output.Options) error {
	if asked := t.values.Str("output"); asked != "" && asked != "highstate" {
		outputter = asked
	} else if outputter == "" && t.static {
		outputter = asked
		if outputter == "" && strings.HasPrefix(t.fun, "state.") {
			outputter = "highstate"
		}
	}

	o.Retcode = int(retcode)
	text := t.render(outputter, v, o)
	file := t.values.Str("output_file")
	if text == "" {
		return nil
	}
	if file == "" {
		_, err := fmt.Fprintln(t.stdout, text)
		return err
	}

	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}

	if _, err := fmt.Fprintln(f, text); err != nil {
		f.Close()
		return err
	}

	return f.Close()
}

// render formats a value with an outputter of the administrator in Python, otherwise with a built-in
// one, otherwise with nested.
func (t *tool) render(name string, v any, o output.Options) string {
	name = output.Canonical(name)
	switch {
	case t.ownOutputter(name):
		if text, ok := t.showByPython(name, v, o); ok {
			return text
		}
	case !output.Known(name):
		t.unknownOutputter(name)
	}
	return output.Render(name, v, o)
}

// emptyOutputFile truncates the file of --out-file unless --out-file-append is set.
func (t *tool) emptyOutputFile() error {
	file := t.values.Str("output_file")
	if file == "" || t.values.Bool("output_file_append") {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return op.Error(fmt.Sprintf("%s: Access denied: %v", file, err))
	}
	return f.Close()
}

func (t *tool) println(s string) { fmt.Fprintln(t.stdout, s) }

// askUser prints a question, reads a line from standard input and returns it.
func (t *tool) askUser(question string) (string, error) {
	fmt.Fprint(t.stdout, question)
	s, err := t.input.ReadString('\n')
	if err != nil && s == "" {
		return "", err
	}
	return strings.TrimRight(s, "\r\n"), nil
}

// exitCode returns the exit code for the error of a tool.
func (t *tool) exitCode(err error) int {
	t.python.stopPython()
	t.closeLogFile()
	var e exit
	var o op.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &e):
		return int(e)
	case errors.As(err, &o):
		return t.failUsage(err)
	}
	fmt.Fprintln(t.stderr, printable.Text(err.Error()))
	return exitGeneric
}
