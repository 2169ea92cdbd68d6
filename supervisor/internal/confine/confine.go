// Package confine sets how readily the kernel kills a child when memory is short, and limits the
// memory of the child.
package confine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/coreos/go-systemd/v22/util"
	godbus "github.com/godbus/dbus/v5"

	"saltern/supervisor/systemd"
)

// OOM adjustments of the children, from -1000 (never killed) to 1000. The supervisor's unit has
// -500. If a child inherited that value and used up the memory, the kernel would kill other
// processes instead. The master's renderers raise their own value.
const (
	MasterOOM   = 0
	BalancerOOM = -300
)

// Child sets the OOM adjustment of a child that has just started. If systemd runs this process as a
// service, Child also moves the child into a scope with a memory limit in percent of the machine's
// memory (0: none). If that fails, the child still runs without a limit, and the error says why.
// Child may be called again for the same child.
func Child(ctx context.Context, child string, pid, oom, percent int, log *slog.Logger) error {
	if err := raiseOOM(pid, oom); err != nil {
		log.Warn("a child keeps our readiness to be killed when memory is short", "service", child, "error", err)
	}
	if percent == 0 || !asService() {
		return nil
	}
	return moveToScope(ctx, child, pid, percent)
}

// asService reports whether systemd has started this process as a service and can be asked.
func asService() bool {
	return os.Geteuid() == 0 && os.Getppid() == 1 && os.Getenv("INVOCATION_ID") != "" && util.IsRunningSystemd()
}

// raiseOOM sets the OOM adjustment of a child to score if score is higher than this process's own
// value. To set a lower value, this process would need rights that it does not have.
func raiseOOM(pid, score int) error {
	own, err := oomScore("self")
	if err != nil || score <= own {
		return err
	}
	return os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(strconv.Itoa(score)), 0)
}

func oomScore(process string) (int, error) {
	b, err := os.ReadFile("/proc/" + process + "/oom_score_adj")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// moveToScope moves a child into a transient scope. The scope is not below the supervisor's own
// control group: the load balancer outlives the supervisor, and systemd starts no service in a
// control group that has groups with processes below it.
func moveToScope(ctx context.Context, child string, pid, percent int) error {
	total, err := memoryTotal("/proc/meminfo")
	if err != nil {
		return err
	}

	name := scopeName(child, pid)
	err = systemd.Job(ctx, 3*time.Second, "bound the memory of "+child,
		func(ctx context.Context, c *dbus.Conn, done chan<- string) (int, error) {
			return c.StartTransientUnitContext(ctx, name, "replace", scopeProperties(child, pid, percent, total), done)
		})

	if e, ok := errors.AsType[godbus.Error](err); ok && e.Name == unitExists {
		return nil
	}

	// systemd may have moved the child and be too busy to answer in time.
	if err != nil && inScope("/proc", pid, name) {
		return nil
	}

	return err
}

// KillRest kills what a child that has ended has left behind in its scope: processes with a process group
// of their own. Otherwise they would work beside those of the next child, and have its memory on top.
func KillRest(ctx context.Context, child string, pid int) error {
	if !asService() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	c, err := dbus.NewSystemConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("kill what %s has left: reach systemd: %w", child, err)
	}
	defer c.Close()

	err = c.KillUnitWithTarget(ctx, scopeName(child, pid), dbus.All, int32(syscall.SIGKILL))
	if e, ok := errors.AsType[godbus.Error](err); ok && e.Name == noSuchUnit {
		return nil // nothing is left, or the child had no scope
	}
	if err != nil {
		return fmt.Errorf("kill what %s has left: %w", child, err)
	}
	return nil
}

func scopeName(child string, pid int) string { return fmt.Sprintf("saltern-%s-%d.scope", child, pid) }

// inScope reports whether a process is in a scope, and so has the scope's limits: systemd sets them
// before it moves processes there. proc is the path of /proc.
func inScope(proc string, pid int, scope string) bool {
	b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return false // the process has ended
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasSuffix(strings.TrimSpace(line), "/"+scope) {
			return true
		}
	}
	return false
}

// unitExists is systemd's answer if the child already has its scope: from an earlier life, or from
// a try that this process gave up before systemd had answered.
const unitExists = "org.freedesktop.systemd1.UnitExists"

// noSuchUnit is systemd's answer for a scope without processes: it has collected it.
const noSuchUnit = "org.freedesktop.systemd1.NoSuchUnit"

// scopeProperties returns the properties of the scope: the properties of the unit
// applianced.service that work through control groups, and the limits on memory. Above MemoryHigh
// the kernel slows the child down. At MemoryMax it kills a process of the group.
func scopeProperties(child string, pid, percent int, total uint64) []dbus.Property {
	max := total / 100 * uint64(percent)
	property := func(name string, v any) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(v)}
	}

	return []dbus.Property{
		dbus.PropDescription("Saltern: " + child),
		dbus.PropPids(uint32(pid)),
		property("MemoryHigh", max/10*9),
		property("MemoryMax", max),
		property("TasksMax", uint64(4096)),
		property("DevicePolicy", "closed"),
		property("CollectMode", "inactive-or-failed"),
		// At a shutdown systemd stops the supervisor before this scope, so that the supervisor
		// stops its children in order.
		dbus.PropBefore("applianced.service"),
	}
}

// memoryTotal returns the machine's memory in bytes. meminfo is the path of /proc/meminfo.
func memoryTotal(meminfo string) (uint64, error) {
	b, err := os.ReadFile(meminfo)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseUint(f[1], 10, 50)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s does not say how much memory there is", meminfo)
}
