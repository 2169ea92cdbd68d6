package observe

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// slowAPI is how long salt-api may take to answer after its start. It is long enough for a machine
// on which everything starts at once for the first time.
const slowAPI = 2 * time.Minute

// findings returns all findings that follow from the facts. Its result depends only on its
// arguments. The board decides which findings are shown.
func findings(cfg *settings.Settings, f facts) []status.Finding {
	if f.Stopping {
		return []status.Finding{{Code: status.SupervisorStopped}}
	}
	if !f.observed {
		return nil
	}

	var out []status.Finding
	for _, i := range f.services {
		if i.Name == status.VirtualService && f.Virtual == nil {
			continue // without a virtual address it does not matter why keepalived did not start
		}

		out = append(out, f.Blocked[i.Name]...)
		switch i.Name {
		case status.MasterService:
			out = append(out, masterFindings(f.now, i, len(f.Blocked[i.Name]) > 0)...)
			if i.State != service.Running {
				continue
			}

			if why := f.cannotKeep(cfg.Node); why != "" {
				out = append(out, status.Finding{Code: status.ReturnsNotKept, Cause: why})
			} else if why := f.unanswered(cfg.Node); why != "" {
				out = append(out,
					status.Finding{Code: status.MasterSilent, Cause: "the load balancer gives it nobody: " + why})
			}
		case status.APIService:
			out = append(out, apiFindings(f.now, i)...)
		case status.BalancerService:
			out = append(out, balancerDown(i, len(f.Blocked[i.Name]) > 0)...)
		}
	}

	out = append(out, f.network...)
	out = append(out, balancerFindings(cfg, f)...)
	out = append(out, diskFindings(cfg, f)...)
	if f.Volume != nil {
		out = append(out, f.Volume.Problems...)
	}

	out = append(out, f.Cluster...)
	out = append(out, f.Own...)
	if cfg.Arbiter && f.front != nil && (f.Setup == "" || f.Setup == status.SetupReady) {
		out = append(out, status.Finding{Code: status.ArbiterUnwell, Subject: cfg.Node, Cause: f.front.Error()})
	}

	out = append(out, virtualFindings(f)...)
	out = append(out, masterReports(f)...)
	return append(out, hostFindings(f)...)
}

// hostFindings returns the findings about the node's programs, options and accounts, and about the
// machine.
func hostFindings(f facts) (found []status.Finding) {
	if f.LastGood != "" {
		found = append(found, status.Finding{Code: status.MasterLastGood, Cause: f.LastGood})
	}

	if f.Packages != "" {
		found = append(found, status.Finding{Code: status.PythonPackages, Cause: f.Packages})
	}

	if f.Audit != "" {
		found = append(found, status.Finding{Code: status.AuditLost, Cause: "the supervisor: " + f.Audit})
	}

	for _, o := range f.Insecure {
		found = append(found, status.Finding{Code: status.InsecureOption, Subject: o})
	}

	for _, s := range f.AsRoot {
		found = append(found, status.Finding{Code: status.ChildrenAsRoot, Subject: s})
	}

	for _, s := range slices.Sorted(maps.Keys(f.Unbounded)) {
		found = append(found, status.Finding{Code: status.MemoryUnbounded, Subject: s, Cause: f.Unbounded[s]})
	}

	if f.locked {
		found = append(found,
			status.Finding{
				Code:  status.NobodyCanLogIn,
				Cause: "the account " + setup.AdminAccount + " has neither a password nor an SSH key",
			})
	}

	if f.clock != nil && !*f.clock {
		found = append(found, status.Finding{Code: status.ClockUnsynced})
	}

	return found
}

func masterFindings(now time.Time, i service.Info, blocked bool) []status.Finding {
	switch i.State {
	case service.Waiting, service.Stopped:
		if blocked {
			return nil // another finding says what blocks the service
		}
		return []status.Finding{{Code: status.MasterDown, Cause: i.Message}}
	case service.Pausing:
		return append(fromLastLine(i), status.Finding{Code: status.MasterDown, Cause: crashText(i)})
	case service.Starting:
		if i.Failures > 0 { // salt-master has crashed before and starts again
			return append(fromLastLine(i), status.Finding{Code: status.MasterDown, Cause: crashText(i)})
		}
		if now.Sub(i.Since) > 20*time.Second {
			return []status.Finding{{Code: status.MasterSilent, Cause: i.Message}}
		}
	case service.Failing:
		return []status.Finding{{Code: status.MasterSilent, Cause: i.Message}}
	}

	return nil
}

// apiFindings returns the findings about salt-api, which waits for the master.
func apiFindings(now time.Time, i service.Info) []status.Finding {
	switch {
	case i.State == service.Pausing, i.State == service.Starting && i.Failures > 0:
		return []status.Finding{{Code: status.APIDown, Cause: "salt-api: " + crashText(i)}}
	case i.State == service.Starting && now.Sub(i.Since) > slowAPI:
		return []status.Finding{{
			Code:  status.APIDown,
			Cause: "salt-api has not answered since its start " + status.Age(now.Sub(i.Since)) + " ago",
		}}
	case i.State == service.Failing:
		return []status.Finding{{Code: status.APIDown, Cause: i.Message}}
	}
	return nil
}

// exitConfig is the exit status of a master with a wrong configuration (sysexits.h, EX_CONFIG).
var exitConfig = (&service.ExitError{Code: 78}).Error()

// crashText describes how a service ended.
func crashText(i service.Info) string {
	s := i.LastExit
	if i.Failures > 1 {
		s = fmt.Sprintf("%s, %d times in a row", s, i.Failures)
	}
	if i.LastLine != "" {
		s += "; last line: " + status.Clip(i.LastLine)
	}
	return s
}

func diskFindings(cfg *settings.Settings, f facts) (found []status.Finding) {
	for path, d := range f.hang {
		found = append(found,
			status.Finding{
				Code:    status.StorageUnusable,
				Subject: path,
				Cause:   fmt.Sprintf("has not answered for %s", status.Age(d)),
			})
	}

	seen := map[probe.Disk]bool{} // two paths may be on the same file system
	for _, path := range []string{cfg.DataDir, cfg.StorageDir()} {
		d, ok := f.disks[path]
		if !ok || errors.Is(d.err, fs.ErrNotExist) { // the first preparation of the node creates the directory
			continue
		}
		if d.err != nil {
			found = append(found,
				status.Finding{Code: status.StorageUnusable, Subject: path, Cause: probe.DiskCause(d.err)})
			continue
		}

		if seen[d.Disk] {
			continue
		}

		seen[d.Disk] = true
		cause := fmt.Sprintf("%s free of %s (%.1f %%), %.1f %% of inodes free", status.Size(d.Free),
			status.Size(d.Total), d.FreePercent, d.InodesPercent)
		switch least := min(d.FreePercent, d.InodesPercent); {
		case d.ReadOnly:
			found = append(found,
				status.Finding{Code: status.StorageUnusable, Subject: path, Cause: "is mounted read-only"})
		case least <= cfg.Limits.DiskFullPercent:
			found = append(found, status.Finding{Code: status.DiskFull, Subject: path, Cause: cause})
		case least <= cfg.Limits.DiskLowPercent:
			found = append(found, status.Finding{Code: status.DiskLow, Subject: path, Cause: cause})
		}
	}

	for _, path := range slices.Sorted(maps.Keys(f.unwritable)) {
		found = append(found, probe.FileFinding(path, f.unwritable[path]))
	}

	if f.keysErr != nil {
		found = append(found,
			status.Finding{Code: status.StorageUnusable, Subject: cfg.PKIDir(), Cause: probe.DiskCause(f.keysErr)})
	}

	return found
}
