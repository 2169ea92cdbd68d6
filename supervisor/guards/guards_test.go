package guards

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/internal/command"
	"saltern/supervisor/status"
)

// answers are what programs say, by their names; a missing one is not installed.
type answers map[string]command.Output

func (a answers) Run(_ context.Context, argv []string) (command.Output, error) {
	out, ok := a[argv[0]]
	if !ok {
		return command.Output{}, exec.ErrNotFound
	}
	return out, nil
}

// TestLook: each guard that is down is named, with what it says itself.
func TestLook(t *testing.T) {
	const source = "^,*,192.0.2.1,2,6,377,33,0.000012,0.000012,0.0001\n"
	said := func(text string) command.Output { return command.Output{Stdout: []byte(text)} }
	well := answers{
		sshd:         {},
		"chronyc":    said(source),
		"systemctl":  said("300\n"),
		"journalctl": said("Journal started\n"),
	}

	all := "salt-master (enforce)\nsalt-api (enforce)\n/usr/bin/other (complain)\n"
	for _, c := range []struct {
		name, profiles string
		program        string // that answers otherwise
		says           command.Output
		want           []status.Code
		cause          string
	}{
		{name: "all well", profiles: all},
		{
			name:     "complains",
			profiles: strings.Replace(all, "salt-api (enforce)", "salt-api (complain)", 1),
			want:     []status.Code{status.ProfileOff},
			cause:    "complain",
		},
		{
			name:     "not loaded",
			profiles: "salt-api (enforce)\n",
			want:     []status.Code{status.ProfileOff},
			cause:    "not loaded",
		},
		{name: "off", want: []status.Code{status.ProfileOff, status.ProfileOff}, cause: "off in the kernel"},
		{
			name:     "sshd",
			profiles: all,
			program:  sshd,
			says: command.Output{
				Exit:   255,
				Stderr: []byte("/etc/ssh/sshd_config.d/9.conf: line 3: Bad configuration option: Prot"),
			},
			want:  []status.Code{status.SSHConfig},
			cause: "9.conf: line 3",
		},
		{
			name:     "sshd, and no name server",
			profiles: all,
			program:  sshd,
			says: command.Output{
				Exit:   255,
				Stderr: []byte("bad addr or host: node.example.org (Temporary failure in name resolution)"),
			},
			want:  []status.Code{status.SSHConfig},
			cause: "an address in ListenAddress needs none",
		},
		{
			name:     "no source",
			profiles: all,
			program:  "chronyc",
			want:     []status.Code{status.TimeAway},
			cause:    "no source",
		},
		{
			name:     "deaf",
			profiles: all,
			program:  "chronyc",
			says:     said(strings.Replace(source, "377", "0", 1) + "^,?,192.0.2.2,0,6,0,4294967295,0,0,0\n"),
			want:     []status.Code{status.TimeAway},
			cause:    "none of 2 sources",
		},
		{
			name:     "one of two hears",
			profiles: all,
			program:  "chronyc",
			says:     said(source + "^,?,192.0.2.2,0,6,0,4294967295,0,0,0\n"),
		},
		{
			name:     "chrony is down",
			profiles: all,
			program:  "chronyc",
			says:     command.Output{Exit: 1, Stdout: []byte("506 Cannot talk to daemon")},
			want:     []status.Code{status.TimeAway},
			cause:    "506",
		},
		{
			name:     "journald",
			profiles: all,
			program:  "journalctl",
			says:     said("Journal started\n/etc/systemd/journald.conf.d/x.conf:2: Unknown key name 'Storge' in section 'Journal', ignoring.\n"),
			want:     []status.Code{status.JournalConfig},
			cause:    "line 2: Unknown key",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{"salt-master", "salt-api"} {
				if err := os.WriteFile(filepath.Join(dir, name),
					[]byte("# text\nprofile "+name+" /usr/bin/"+name+" {\n}\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			s := System{Profiles: dir, Loaded: filepath.Join(dir, "loaded"), Program: well}
			if c.profiles != "" {
				if err := os.WriteFile(s.Loaded, []byte(c.profiles), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			if c.program != "" {
				one := answers{c.program: c.says}
				for name, out := range well {
					if name != c.program {
						one[name] = out
					}
				}
				s.Program = one
			}

			found := s.Look(t.Context())
			var codes []status.Code
			text := ""
			for _, f := range found {
				codes = append(codes, f.Code)
				text += f.Subject + ": " + f.Cause + "\n"
			}

			if !slices.Equal(codes, c.want) || !strings.Contains(text, c.cause) {
				t.Errorf("%v, want %v with %q:\n%s", codes, c.want, c.cause, text)
			}
		})
	}

	if found := (System{Profiles: t.TempDir(), Program: answers{}}).Look(t.Context()); len(found) != 0 {
		t.Errorf("a machine without any of it: %+v", found)
	}
}

// busyJournal is a journal that journald has written many lines into. It keeps to what
// journalctl(1) says of -n, the last lines, and --grep, lines that match.
type busyJournal struct{ lines []string }

func (j busyJournal) Run(_ context.Context, argv []string) (command.Output, error) {
	if argv[0] != "journalctl" {
		return command.Output{Stdout: []byte("300\n")}, nil
	}

	lines := j.lines
	if at := slices.Index(argv, "--grep"); at >= 0 {
		pattern := regexp.MustCompile(argv[at+1])
		lines = slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !pattern.MatchString(line) })
	}

	if at := slices.Index(argv, "-n"); at >= 0 {
		number, err := strconv.Atoi(argv[at+1])
		if err != nil {
			return command.Output{}, err
		}
		lines = lines[max(0, len(lines)-number):]
	}

	return command.Output{Stdout: []byte(strings.Join(lines, "\n"))}, nil
}

// TestJournalComplaintIsFound: what journald said of its configuration at its start is found
// behind whatever it has said since.
func TestJournalComplaintIsFound(t *testing.T) {
	j := busyJournal{lines: []string{"/etc/systemd/journald.conf.d/x.conf:2: Unknown key name 'Storge' in section 'Journal', ignoring."}}
	for i := range 10 * maxComplaints {
		j.lines = append(j.lines, fmt.Sprintf("Suppressed %d messages from web.service", i))
	}
	found := System{Program: j}.journal(t.Context())
	if len(found) != 1 || found[0].Subject != "/etc/systemd/journald.conf.d/x.conf" ||
		!strings.Contains(found[0].Cause, "line 2: Unknown key") {
		t.Errorf("%+v", found)
	}
}

// TestFindings: a report that is missing, old, broken or of a strange code is no
// clean bill; one is not old because the machine was suspended, or its clock was set.
func TestFindings(t *testing.T) {
	const booted = time.Hour
	now := uptime()
	old := now - booted
	wrong := []status.Finding{{Code: status.FirewallWrong, Cause: "gone"}}
	for _, c := range []struct {
		name    string
		report  *Report // nil: none
		text    string  // of the file, instead
		running time.Duration
		want    status.Code
	}{
		{name: "well", report: &Report{Ran: now}, running: booted},
		{name: "wrong", report: &Report{Ran: now, Findings: wrong}, running: booted, want: status.FirewallWrong},
		{name: "old", report: &Report{Ran: old, Findings: wrong}, running: booted, want: status.GuardsUnseen},
		{name: "after a long sleep", report: &Report{At: time.Now().AddDate(0, 0, -7), Ran: now}, running: booted},
		{
			name:    "of a clock that was put back",
			report:  &Report{At: time.Now().AddDate(7, 0, 0), Ran: now},
			running: booted,
		},
		{name: "none yet", running: time.Minute},
		{name: "none", running: booted, want: status.GuardsUnseen},
		{name: "broken", text: "{", running: booted, want: status.GuardsUnseen},
		{name: "large", text: strings.Repeat(" ", maxReport+1), running: booted, want: status.GuardsUnseen},
		{
			name:    "another's code",
			report:  &Report{Ran: now, Findings: []status.Finding{{Code: status.MasterDown}}},
			running: booted,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := Write(dir, SystemFile, Report{}); err != nil {
				t.Fatal(err)
			}

			var err error
			switch {
			case c.text != "":
				err = os.WriteFile(filepath.Join(dir, FirewallFile), []byte(c.text), 0o600)
			case c.report != nil:
				err = writeReport(dir, FirewallFile, *c.report)
			}

			if err != nil {
				t.Fatal(err)
			}

			got := status.Code("")
			for _, f := range Findings(dir, c.running) {
				got = f.Code
			}

			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}

	if found := Findings(filepath.Join(t.TempDir(), "none"), booted); found != nil {
		t.Errorf("a host of one's own: %+v", found)
	}
}

// TestWallReports: the report says that the table is gone, which rules were left out
// and what refused them, and nothing when all is well.
func TestWallReports(t *testing.T) {
	const inside = "SALTERN_TEST_GUARDS"
	for _, tool := range []string{"nft", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil || os.Geteuid() != 0 {
			t.Skipf("SKIPPED: needs root and %s", tool)
		}
	}

	if os.Getenv(inside) == "" {
		cmd := exec.Command("unshare", "--net", os.Args[0], "-test.run", "^TestWallReports$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestWallReports") {
			t.Fatalf("in a namespace: %v\n%s", err, out)
		}
		return
	}

	ctx := t.Context()
	dir := t.TempDir()
	w := Firewall{Dir: dir, Own: t.TempDir()}
	look := func() (string, error) {
		t.Helper()
		err := w.Keep(ctx)
		r, broken := readReport(dir, FirewallFile)
		if broken != nil {
			t.Fatal(broken)
		}

		text := ""
		for _, f := range r.Findings {
			text += string(f.Code) + " " + f.Subject + " " + f.Cause + "\n"
		}

		return text, err
	}

	nft := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("nft", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}

	if text, err := look(); err == nil || !strings.Contains(text, "SCA-507") || !strings.Contains(text, "not there") {
		t.Errorf("no table: %v %s", err, text)
	}

	nft("-f", "../../image/profile/overlay/usr/lib/saltern/nftables.conf")
	if err := NoteRules(ctx, dir); err != nil {
		t.Fatal(err)
	}

	if text, err := look(); err != nil || text != "" {
		t.Errorf("all well: %v %s", err, text)
	}

	if err := os.WriteFile(filepath.Join(w.Own, "x.nft"), []byte("acept\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if text, err := look(); err != nil || !strings.Contains(text, "SCA-508 "+w.Own+"/x.nft line 1: syntax error") {
		t.Errorf("own rule: %v %s", err, text)
	}

	nft("add", "rule", "inet", "saltern", "input", "accept")
	for i := range maxFindings {
		if err := os.WriteFile(filepath.Join(w.Own, fmt.Sprint("not a name ", i, ".nft")), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if text, err := look(); err != nil || !strings.Contains(text, "SCA-507") ||
		!strings.Contains(text, "changed the rules") {
		t.Errorf("changed: %v %s", err, text)
	}

	if err := os.WriteFile(filepath.Join(dir, refusedFile), []byte("/etc/nftables.conf:3: syntax error"),
		0o600); err != nil {
		t.Fatal(err)
	}

	if text, _ := look(); !strings.Contains(text, "is refused") {
		t.Errorf("refused: %s", text)
	}

	nft("flush", "ruleset")
	if text, err := look(); err == nil || !strings.Contains(text, "not there") {
		t.Errorf("flushed: %v %s", err, text)
	}
}
