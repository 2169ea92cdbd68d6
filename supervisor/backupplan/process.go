package backupplan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"saltern/internal/command"
)

const (
	lookTakes = 15 * time.Second
	// makeIdle is how long a child may make no progress, makeTakes how long it may take in all.
	makeIdle  = 5 * time.Minute
	makeTakes = 12 * time.Hour
)

// process implements [child] by a child process that runs this program; see [Main].
type process struct{ cfg Config }

func (p process) encodeSpec(now bool) (string, error) {
	own := *p.cfg.Settings
	own.Master.Options = nil // only the master uses the options, and JSON may not allow their YAML keys
	b, err := json.Marshal(Spec{Settings: &own, ConfigPath: p.cfg.ConfigPath, Version: p.cfg.Version, Now: now})
	if err != nil {
		return "", fmt.Errorf("start a helper for backups: %w", err)
	}
	return string(b), nil
}

func (p process) arguments(verb string) []string {
	return []string{p.cfg.Executable, "backup", "helper", verb}
}

// readPlace implements child.
func (p process) readPlace(ctx context.Context) (s seen, err error) {
	spec, err := p.encodeSpec(false)
	if err != nil {
		return s, err
	}

	out, err := command.Exec{Limit: lookTakes, Stdin: spec, MaxOutput: 2 << 20}.Run(ctx, p.arguments("look"))
	if err == nil {
		err = out.Err()
	}

	for line := range bytes.Lines(out.Stdout) { // the last complete line counts
		var l seen
		if json.Unmarshal(line, &l) == nil {
			s = l
		}
	}

	if err != nil && s.Record != nil { // the child has printed the record, so the directory hangs
		s.Unread = fmt.Sprintf("%s does not answer within %s", p.cfg.Settings.Backup.To, lookTakes)
		return s, nil
	}

	if err == nil && s.Record == nil && s.Error == "" {
		err = errors.New("it says nothing")
	}

	if errors.Is(err, command.ErrTimeout) {
		err = fmt.Errorf("the storage does not answer within %s", lookTakes)
	}

	if err != nil {
		err = fmt.Errorf("look at the backups: %w", err)
	}

	return s, err
}

// makeBackup implements child.
func (p process) makeBackup(ctx context.Context, now bool) Outcome {
	spec, err := p.encodeSpec(now)
	if err != nil {
		return Outcome{Failed, briefError(err)}
	}
	return p.runChild(ctx, spec, makeIdle)
}

func (p process) runChild(ctx context.Context, spec string, idle time.Duration) Outcome {
	stuck := errors.New("stuck")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	timer := time.AfterFunc(idle, func() { cancel(stuck) })
	defer timer.Stop()
	out, err := command.Exec{Limit: makeTakes, Stdin: spec, Tee: awake{timer, idle}}.Run(ctx, p.arguments("make"))
	switch {
	case errors.Is(context.Cause(ctx), stuck):
		return Outcome{Failed,
			fmt.Sprintf("it made no progress for %s and was given up: the storage, or %s, does not answer",
				idle, p.cfg.Settings.Backup.To)}
	case err == nil:
		err = out.Err()
	}

	var last step
	for line := range bytes.Lines(out.Stdout) {
		var s step
		if json.Unmarshal(line, &s) == nil {
			last = s
		}
	}

	if last.Outcome != nil {
		return *last.Outcome
	}

	if err == nil {
		err = errors.New("it says nothing")
	}

	return Outcome{Failed, briefError(fmt.Errorf("make a backup: %w", err))}
}

// awake restarts a timer with each write.
type awake struct {
	timer *time.Timer
	idle  time.Duration
}

// Write implements io.Writer.
func (a awake) Write(b []byte) (int, error) {
	a.timer.Reset(a.idle)
	return len(b), nil
}
