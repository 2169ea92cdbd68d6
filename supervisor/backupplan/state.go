package backupplan

import (
	"fmt"
	"time"

	"saltern/supervisor/status"
)

// Facts returns the backups' part of the status. k may be nil: this node makes no scheduled
// backups.
func (k *Keeper) Facts() (*status.Backup, []status.Finding) {
	if k == nil {
		return nil, nil
	}
	return k.State(), k.Findings()
}

// State returns the state of the backups for the status, or nil while that is not known.
func (k *Keeper) State() *status.Backup {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state()
}

func (k *Keeper) state() *status.Backup {
	if !k.looked {
		return nil
	}

	now := k.cfg.Now()
	r, b := k.view.Record, k.cfg.Settings.Backup
	out := &status.Backup{
		Every:   b.Every,
		To:      b.To,
		Keep:    b.Keep,
		Last:    r.Last,
		Failure: k.failure(),
		Next:    r.nextTime(k.schedule, now),
	}
	if out.Next.IsZero() {
		out.Next = k.began
	}

	if c := r.holder(k.cfg.Settings.Node, now); c != nil {
		out.Making = &c.BackupMaker
	} else if k.busy {
		out.Making = &status.BackupMaker{Node: k.cfg.Settings.Node, Since: k.since}
	}

	return out
}

// failure returns the newest failure that this node knows of, or nil.
func (k *Keeper) failure() *status.BackupFailure {
	known := k.view.Record.Failure
	if k.failed != nil && (known == nil || k.failed.Time.After(known.Time)) {
		return k.failed
	}
	return known
}

// List returns the state, and the backups in this node's directory.
func (k *Keeper) List() status.BackupList {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.cfg.Settings.Backup
	out := status.BackupList{
		Backup:  status.Backup{Every: b.Every, To: b.To, Keep: b.Keep},
		Files:   []status.BackupFile{},
		Tries:   k.tries,
		Running: k.busy,
		Unread:  k.fault,
	}

	if st := k.state(); st != nil {
		out.Backup = *st
		out.Files = append(out.Files, k.view.Files...)
	}

	if out.Unread == "" {
		out.Unread = k.view.Unread
	}

	if k.last.Kind != "" && k.last.Kind != Made || k.last.Text != "" {
		out.Result = k.last.Text
		if out.Result == "" {
			out.Result = string(k.last.Kind)
		}
	}

	return out
}

// Findings returns the problems of the backups.
func (k *Keeper) Findings() []status.Finding {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.cfg.Now()
	if !k.looked {
		if k.fault != "" && now.Sub(k.began) > retryAfter {
			return []status.Finding{{Code: status.BackupLate, Cause: k.fault}}
		}
		return nil
	}

	r := *k.view.Record
	due := r.dueTime(k.schedule, now)
	if due.Before(k.began) && r.lastTime(now).IsZero() {
		due = k.began
	}

	// A backup that is more than an hour late is a problem.
	failure, late := k.failure(), now.Sub(due) > time.Hour
	if failure == nil && (!late || k.busy || r.holder(k.cfg.Settings.Node, now) != nil) {
		return nil
	}

	text := "none was ever made"
	switch l := r.Last; {
	case l != nil && l.Time.After(now):
		text = "the last one has a time in the future, " + l.Time.UTC().Format("2006-01-02 15:04 UTC") +
			": was the clock wrong?"
	case l != nil:
		text = fmt.Sprintf("the last one is %s old, of %s", status.Age(now.Sub(l.Time)),
			l.Time.UTC().Format("2006-01-02 15:04 UTC"))
	}

	switch {
	case failure != nil:
		text += fmt.Sprintf("; %s tried at %s: %s", failure.Node, failure.Time.UTC().Format("15:04 UTC"), failure.Cause)
	case k.fault != "":
		text += "; " + k.fault
	case k.last.Kind == Held:
		text += "; " + k.last.Text
	default:
		text += "; it was due at " + due.UTC().Format("2006-01-02 15:04 UTC") +
			", and no node that serves has backup.every in its appliance.yaml and could"
	}

	return []status.Finding{{Code: status.BackupLate, Cause: text}}
}
