package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/master/internal/pyframe"
	"saltern/master/jobs"
	"saltern/master/value"
)

// pauseDefs returns the runners that pause or end an orchestration in progress. Sources:
// salt/runners/state.py and salt/modules/state.py (pause, resume, soft_kill), salt/state.py
// (State.check_pause), which reads the file before each step. If the job is in progress on another
// master of the cluster, they pass the change to that master. Unlike Salt, they refuse the id of a
// job that is not in progress: no orchestration would read the file.
func pauseDefs() map[string]def {
	pause := def{"jid state_id= duration=", statePause}
	resume := def{"jid state_id=", stateResume}
	return map[string]def{
		"state.pause":     pause,
		"state.set_pause": pause,
		"state.resume":    resume,
		"state.rm_pause":  resume,
		"state.soft_kill": {"jid state_id=", stateSoftKill},
	}
}

// allSteps is the id that stands for each step.
const allSteps = "__all__"

// maxPauses bounds the file with the pauses of a job in bytes.
const maxPauses = 1 << 20

// maxStepID bounds the id of a step in a change of pauses in bytes.
const maxStepID = 4 << 10

// Pauses keeps which steps of which jobs are paused or ended, in files below cachedir where Salt's
// library looks for them. It is safe for concurrent use.
type Pauses struct {
	dir string
	mu  sync.Mutex // held while a file is changed
}

// NewPauses returns the Pauses in the folder cacheDir.
func NewPauses(cacheDir string) *Pauses {
	return &Pauses{dir: filepath.Join(cacheDir, "state_pause")}
}

// PauseAction is what happens to a step.
type PauseAction string

// The actions.
const (
	Pause  PauseAction = "pause"
	Resume PauseAction = "resume"
	Kill   PauseAction = "kill" // the orchestration ends before the step
)

// PauseChange changes the pauses of a job.
type PauseChange struct {
	JID     string
	Action  PauseAction
	Step    string // id of the step, or allSteps
	Seconds int64  // how long a pause lasts; 0: until it is resumed
}

// PausesElsewhere changes the pauses of a job that is not in progress on this master.
type PausesElsewhere interface {
	// ChangePauses returns nil when the master that runs the job has stored the change, and an error
	// that names the masters that were asked when none runs it.
	ChangePauses(ctx context.Context, change PauseChange) error
}

// apply stores a change. The file of a job maps ids of steps to maps with "kill" (true) and
// "duration" (seconds).
func (p *Pauses) apply(change PauseChange) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	path := filepath.Join(p.dir, change.JID)
	steps := value.NewMap()
	packed, err := durable.Read(path, maxPauses)
	switch {
	case err == nil:
		// A file that cannot be unpacked is replaced.
		if kept, err := pyframe.Map(packed); err == nil {
			steps = kept
		}
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read the pauses of a job: %w", err)
	}

	change.changeSteps(steps)
	packed, err = pyframe.Pack(steps)
	if err != nil {
		return fmt.Errorf("pack the pauses of a job: %w", err)
	}
	if len(packed) > maxPauses {
		return fmt.Errorf("keep the pauses of a job: %d bytes are too many, %d are allowed", len(packed), maxPauses)
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return fmt.Errorf("keep the pauses of a job: %w", err)
	}
	if err := durable.Swap(path, packed, 0o644); err != nil {
		return fmt.Errorf("keep the pauses of a job: %w", err)
	}
	return nil
}

func (c PauseChange) changeSteps(steps *value.Map) {
	switch c.Action {
	case Pause:
		step := stepOf(steps, c.Step)
		if c.Seconds > 0 {
			step.Set("duration", c.Seconds)
		}

	case Kill:
		stepOf(steps, c.Step).Set("kill", true)

	case Resume:
		steps.Delete(c.Step)
		if c.Step == allSteps {
			for _, other := range steps.Keys() {
				steps.Delete(other)
			}
		}
	}
}

// stepOf returns the pause of one step, which it adds if there is none.
func stepOf(steps *value.Map, id string) *value.Map {
	step := steps.Map(id)
	if step == nil {
		step = value.NewMap()
		steps.Set(id, step)
	}
	return step
}

// ChangeOwnPauses changes the pauses of a job if it is in progress on this master, and reports
// whether it is.
func (e *Env) ChangeOwnPauses(change PauseChange) (found bool, err error) {
	valid := jobs.Valid(change.JID) && len(change.Step) <= maxStepID &&
		slices.Contains([]PauseAction{Pause, Resume, Kill}, change.Action)
	if !valid || !(&call{Env: e}).inProgress(change.JID) {
		return false, nil
	}
	return true, e.Pauses.apply(change)
}

// changePauses changes the pauses of the job in the argument jid, on the master on which it is in
// progress.
func (c *call) changePauses(action PauseAction, seconds int64) error {
	if err := requirePart("state of jobs", c.Pauses == nil); err != nil {
		return err
	}

	jid := value.Str(c.values["jid"])
	if !jobs.Valid(jid) {
		return fmt.Errorf("'%s' is not a job id", jid)
	}

	change := PauseChange{
		JID:     jid,
		Action:  action,
		Step:    cmp.Or(c.textArgument("state_id"), allSteps),
		Seconds: seconds,
	}
	if len(change.Step) > maxStepID {
		return fmt.Errorf("state_id has %d bytes, at most %d are allowed", len(change.Step), maxStepID)
	}

	found, err := c.ChangeOwnPauses(change)
	switch {
	case found:
		return err
	case c.PausesElsewhere != nil:
		return c.PausesElsewhere.ChangePauses(c.ctx, change)
	}

	return fmt.Errorf("no orchestration with the job id %s is at work on this master; "+
		"salt-run jobs.master lists those that are", jid)
}

func statePause(c *call) (any, error) {
	duration, err := c.seconds("duration")
	if err != nil {
		return nil, err
	}
	return nil, c.changePauses(Pause, int64(duration/time.Second))
}

func stateResume(c *call) (any, error) { return nil, c.changePauses(Resume, 0) }

func stateSoftKill(c *call) (any, error) { return nil, c.changePauses(Kill, 0) }
