package guards

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"saltern/internal/command"
	"saltern/internal/durable"
	"saltern/supervisor/status"
)

// A System is a machine whose guards are checked. Its zero value is none; see [Machine].
type System struct {
	Profiles string         // directory with the AppArmor profiles that have to be enforced
	Loaded   string         // the kernel's list of profiles
	Program  command.Runner // runs sshd, chronyc, systemctl and journalctl
}

// Machine is the machine that this program runs on.
func Machine() System {
	return System{
		Profiles: "/etc/apparmor.d",
		Loaded:   "/sys/kernel/security/apparmor/profiles",
		Program:  command.Exec{Limit: 20 * time.Second, Cut: true},
	}
}

// Look returns the findings about the guards other than the firewall.
func (s System) Look(ctx context.Context) (out []status.Finding) {
	out = append(out, s.profiles()...)
	out = append(out, s.checkSSH(ctx)...)
	out = append(out, s.checkClock(ctx)...)
	return append(out, s.journal(ctx)...)
}

var profileLine = regexp.MustCompile(`(?m)^profile\s+(\S+)`)

// profiles finds those of ours that the kernel does not enforce.
func (s System) profiles() (out []status.Finding) {
	files, err := filepath.Glob(filepath.Join(s.Profiles, "salt*"))
	if err != nil || len(files) == 0 {
		return nil
	}

	modes := map[string]string{}
	list, failed := os.ReadFile(s.Loaded)
	for line := range strings.Lines(string(list)) {
		if name, mode, ok := strings.Cut(strings.TrimSpace(line), " ("); ok {
			modes[name] = strings.TrimSuffix(mode, ")")
		}
	}

	for _, file := range files {
		text, err := durable.Read(file, maxReport)
		if err != nil {
			out = append(out, status.Finding{Code: status.ProfileOff, Subject: filepath.Base(file), Cause: err.Error()})
			continue
		}

		for _, m := range profileLine.FindAllStringSubmatch(string(text), -1) {
			switch mode := modes[m[1]]; {
			case mode == "enforce" || mode == "kill":
			case failed != nil:
				out = append(out,
					status.Finding{
						Code:    status.ProfileOff,
						Subject: m[1],
						Cause:   "AppArmor is off in the kernel, or cannot be asked: " + failed.Error(),
					})
			case mode == "":
				out = append(out,
					status.Finding{
						Code:    status.ProfileOff,
						Subject: m[1],
						Cause:   "it is not loaded; " + file + " may have a fault",
					})
			default:
				out = append(out,
					status.Finding{Code: status.ProfileOff, Subject: m[1], Cause: "it is loaded in the mode " + mode})
			}
		}
	}

	return out
}

// sshd wants to be called by its whole path.
const sshd = "/usr/sbin/sshd"

// unknownForNow is the C library's text for a name when no name server answers (gai_strerror(3),
// EAI_AGAIN).
const unknownForNow = "Temporary failure in name resolution"

// notInstalled reports whether a program could not be run because it is missing.
func notInstalled(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}

// checkSSH lets sshd read its configuration, as its next start will.
func (s System) checkSSH(ctx context.Context) []status.Finding {
	_, err := command.Do(ctx, s.Program, sshd, "-t")
	if err == nil || notInstalled(err) {
		return nil
	}
	cause := err.Error()
	if strings.Contains(cause, unknownForNow) {
		cause += "; no name server answered: an address in ListenAddress needs none"
	}
	return []status.Finding{{Code: status.SSHConfig, Cause: cause}}
}

// checkClock asks chrony whether it hears a source of the time.
func (s System) checkClock(ctx context.Context) []status.Finding {
	list, err := command.Do(ctx, s.Program, "chronyc", "-n", "-c", "-h", "/run/chrony/chronyd.sock", "sources")
	if notInstalled(err) {
		return nil
	}
	if err != nil {
		return []status.Finding{{Code: status.TimeAway, Cause: "chronyc: " + err.Error()}}
	}

	sources, heard := chronySources(string(list))
	switch {
	case sources == 0:
		return []status.Finding{{Code: status.TimeAway, Cause: "chrony has no source"}}
	case heard == 0:
		return []status.Finding{{
			Code:  status.TimeAway,
			Cause: fmt.Sprintf("none of %d sources has answered any of the last eight questions", sources),
		}}
	}

	return nil
}

// chronySources reads `chronyc -c sources` (chronyc(1)): the sixth field is the
// register of the last eight answers, in octal.
func chronySources(list string) (sources, heard int) {
	for line := range strings.Lines(list) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		if len(fields) < 6 {
			continue
		}
		sources++
		if reach, err := strconv.ParseUint(fields[5], 8, 16); err == nil && reach > 0 {
			heard++
		}
	}
	return sources, heard
}

// complaint matches the message of systemd's readers of configurations about a line that they
// leave out. journalctl uses the expression, too, and has other classes of characters.
var complaint = regexp.MustCompile(`^/[^ ]+\.conf(\.d/[^ ]+\.conf)?:[0-9]+: `)

// maxComplaints bounds the lines that are read.
const maxComplaints = 200

// journal finds lines of its configuration that the running journald has left out. journald logs
// them at its start, and much else later: only this kind of message counts.
func (s System) journal(ctx context.Context) (out []status.Finding) {
	pid, err := command.Do(ctx, s.Program, "systemctl", "show", "-P", "MainPID", "systemd-journald.service")
	if err != nil {
		return nil // no systemd
	}

	lines, err := command.Do(ctx, s.Program, "journalctl", "-q", "-b", "-o", "cat", "-n", strconv.Itoa(maxComplaints),
		"--case-sensitive=yes", "--grep", complaint.String(),
		"_PID="+strings.TrimSpace(string(pid)), "_COMM=systemd-journal")
	if err != nil {
		return nil
	}

	for line := range strings.Lines(string(lines)) {
		if line = strings.TrimSpace(line); complaint.MatchString(line) {
			file, cause, _ := strings.Cut(line, ":")
			out = append(out, status.Finding{Code: status.JournalConfig, Subject: file, Cause: "line " + cause})
		}
	}

	return out
}
