// Package guards checks the protection of a machine made from the image: the firewall, AppArmor's
// profiles, and the configurations of sshd, chrony and journald. systemd's timers start services
// that make the checks as root. The supervisor has no right to make them; it reads the reports of
// the services and shows the findings.
package guards

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/durable"
	"saltern/internal/printable"
	"saltern/supervisor/status"
)

// Dir is the folder of the reports. The services create it.
const Dir = "/run/saltern-guards"

// Names of the reports.
const (
	FirewallFile = "firewall.json"
	SystemFile   = "system.json"
)

// containerFile exists in a container (systemd.exec, container interface), where AppArmor and the
// clock belong to the host. saltern-guards.service does not start in a container.
const containerFile = "/run/systemd/container"

const (
	// every is the interval at which systemd's timers start a check.
	every = 5 * time.Minute
	// silentFor is how old a report may be: two checks may be missing.
	silentFor = 2*every + 2*time.Minute

	maxReport   = 256 << 10
	maxFindings = 40
	maxCause    = 400
)

// A Report holds the findings of one service.
type Report struct {
	At       time.Time        `json:"at"`
	Ran      time.Duration    `json:"ran"` // uptime of the machine when the report was written; see uptime
	Findings []status.Finding `json:"findings"`
	// Loaded is the digest of the loaded administrator's rules; see [firewall.LoadOwn]
	Loaded string `json:"loaded,omitempty"`
}

// Write writes r with the present time in place of the last report.
func Write(dir, name string, r Report) error {
	r.At = time.Now()
	r.Ran = uptime()
	return writeReport(dir, name, r)
}

func writeReport(dir, name string, r Report) error {
	r.Findings = r.Findings[:min(len(r.Findings), maxFindings)]
	for i := range r.Findings {
		r.Findings[i].Cause = printable.Brief(r.Findings[i].Cause, maxCause)
	}
	text, err := json.Marshal(r)
	if err == nil {
		err = durable.Swap(filepath.Join(dir, name), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the report on what guards this node: %w", err)
	}
	return nil
}

// uptime returns how long this machine has run, without the time for which it was suspended.
// Changes of the clock do not affect it. The timers that start a check use the same clock
// (systemd.timer, CLOCK_MONOTONIC).
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// readReport reads a report. If the file is missing, the report is empty.
func readReport(dir, name string) (Report, error) {
	text, err := durable.Read(filepath.Join(dir, name), maxReport)
	if errors.Is(err, fs.ErrNotExist) {
		return Report{}, nil
	}
	if err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return Report{}, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// codes lists the codes that a report may contain.
var codes = []status.Code{status.FirewallWrong, status.FirewallOwn, status.ProfileOff, status.SSHConfig,
	status.TimeAway, status.JournalConfig}

// Findings returns the findings of the reports in dir. If reports are missing or old although the
// machine has run for long enough, it returns the finding that no service checks this machine. If
// dir does not exist, this machine has no such services, and there are no findings. Findings only
// reads files in a memory file system and does not block.
func Findings(dir string, running time.Duration) []status.Finding {
	if _, err := os.Stat(dir); err != nil {
		return nil
	}

	reports := []string{FirewallFile}
	if _, err := os.Stat(containerFile); err != nil {
		reports = append(reports, SystemFile)
	}

	var out []status.Finding
	for _, name := range reports {
		r, err := readReport(dir, name)
		age := min(uptime()-r.Ran, running)
		switch {
		case err != nil:
			out = append(out, status.Finding{Code: status.GuardsUnseen, Subject: name, Cause: err.Error()})
		case age > silentFor:
			out = append(out,
				status.Finding{
					Code:    status.GuardsUnseen,
					Subject: name,
					Cause:   "there has been no report for " + status.Age(age),
				})
		default:
			out = append(out, r.Findings...)
		}
	}

	return slices.DeleteFunc(out, func(f status.Finding) bool {
		return f.Code != status.GuardsUnseen && !slices.Contains(codes, f.Code)
	})
}
