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

// A System is a machine whose protection is checked. Its zero value cannot be used; see [Machine].
type System struct {
	Profiles string         // folder of the AppArmor profiles that must be enforced
	Loaded   string         // path of the kernel's list of profiles
	Program  command.Runner // runs sshd, chronyc, systemctl and journalctl
}

// Machine returns the machine that this program runs on.
func Machine() System {
	return System{
		Profiles: "/etc/apparmor.d",
		Loaded:   "/sys/kernel/security/apparmor/profiles",
		Program:  command.Exec{Limit: 20 * time.Second, Cut: true},
	}
}

// Look returns the findings about everything except the firewall.
func (s System) Look(ctx context.Context) (found []status.Finding) {
	found = append(found, s.profiles()...)
	found = append(found, s.checkSSH(ctx)...)
	found = append(found, s.checkClock(ctx)...)
	return append(found, s.journal(ctx)...)
}

var profileLine = regexp.MustCompile(`(?m)^profile\s+(\S+)`)

// profiles returns a finding for each AppArmor profile of the folder Profiles that the kernel does
// not enforce.
func (s System) profiles() (found []status.Finding) {
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
			found = append(found, status.Finding{Code: status.ProfileOff, Subject: filepath.Base(file), Cause: err.Error()})
			continue
		}

		for _, m := range profileLine.FindAllStringSubmatch(string(text), -1) {
			switch mode := modes[m[1]]; {
			case mode == "enforce" || mode == "kill":
			case failed != nil:
				found = append(found,
					status.Finding{
						Code:    status.ProfileOff,
						Subject: m[1],
						Cause:   "AppArmor is off in the kernel, or cannot be asked: " + failed.Error(),
					})
			case mode == "":
				found = append(found,
					status.Finding{
						Code:    status.ProfileOff,
						Subject: m[1],
						Cause:   "it is not loaded; " + file + " may have a fault",
					})
			default:
				found = append(found,
					status.Finding{Code: status.ProfileOff, Subject: m[1], Cause: "it is loaded in the mode " + mode})
			}
		}
	}

	return found
}

// sshd is a full path, because sshd refuses to run without one.
const sshd = "/usr/sbin/sshd"

// unknownForNow is the C library's text for a name that no name server has answered for
// (gai_strerror(3), EAI_AGAIN).
const unknownForNow = "Temporary failure in name resolution"

// notInstalled reports whether a program could not be run because it is missing.
func notInstalled(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}

// checkSSH checks sshd's configuration by sshd itself, which reads it as at its next start.
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

// checkClock asks chrony whether any time source answers.
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

// chronySources parses the output of `chronyc -c sources` (chronyc(1)): the sixth field is the
// register of the last eight answers, in octal. It returns the number of sources, and in heard the
// number of sources that answer.
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

// complaint matches the message of systemd's parsers of configuration about a line that they
// ignore. journalctl uses the expression too, so it must not use classes that only Go has.
var complaint = regexp.MustCompile(`^/[^ ]+\.conf(\.d/[^ ]+\.conf)?:[0-9]+: `)

// maxComplaints bounds the lines of journalctl's output that are read.
const maxComplaints = 200

// journal returns a finding for each line of journald's configuration that the running journald has
// ignored. journald logs these lines when it starts. It logs much else later, so journal reads only
// this kind of message.
func (s System) journal(ctx context.Context) (found []status.Finding) {
	pid, err := command.Do(ctx, s.Program, "systemctl", "show", "-P", "MainPID", "systemd-journald.service")
	if err != nil {
		return nil // systemd does not run here
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
			found = append(found, status.Finding{Code: status.JournalConfig, Subject: file, Cause: "line " + cause})
		}
	}

	return found
}
