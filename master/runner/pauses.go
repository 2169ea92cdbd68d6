package runner

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/master/internal/pyframe"
	"saltern/master/jobs"
	"saltern/master/value"
)

// pauseDefs returns the runners that pause or end an orchestration in progress. Sources:
// salt/runners/state.py and salt/modules/state.py (pause, resume, soft_kill), salt/state.py
// (State.check_pause), which reads the file before each step. Unlike Salt, they refuse the id of a
// job that is not in progress here: no orchestration would read the file.
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

// change changes the pauses of a job: a map from ids of steps to maps with "kill" (true) and
// "duration" (seconds).
func (p *Pauses) change(jid string, change func(steps *value.Map)) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	path := filepath.Join(p.dir, jid)
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

	change(steps)
	packed, err = pyframe.Pack(steps)
	if err != nil {
		return fmt.Errorf("pack the pauses of a job: %w", err)
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return fmt.Errorf("keep the pauses of a job: %w", err)
	}
	if err := durable.Swap(path, packed, 0o644); err != nil {
		return fmt.Errorf("keep the pauses of a job: %w", err)
	}
	return nil
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

// changePauses changes the pauses of the job in the argument jid, if it is in progress. id is the
// argument state_id.
func (c *call) changePauses(change func(steps *value.Map, id string)) error {
	if err := requirePart("state of jobs", c.Pauses == nil); err != nil {
		return err
	}

	jid := value.Str(c.values["jid"])
	if !jobs.Valid(jid) {
		return fmt.Errorf("'%s' is not a job id", jid)
	}
	if !c.inProgress(jid) {
		return fmt.Errorf("no orchestration with the job id %s is at work on this master; "+
			"salt-run jobs.master lists those that are, on each master of a cluster its own", jid)
	}

	id := cmp.Or(c.textArgument("state_id"), allSteps)
	return c.Pauses.change(jid, func(steps *value.Map) { change(steps, id) })
}

func statePause(c *call) (any, error) {
	duration, err := c.seconds("duration")
	if err != nil {
		return nil, err
	}
	return nil, c.changePauses(func(steps *value.Map, id string) {
		step := stepOf(steps, id)
		if duration > 0 {
			step.Set("duration", int64(duration/time.Second))
		}
	})
}

func stateResume(c *call) (any, error) {
	return nil, c.changePauses(func(steps *value.Map, id string) {
		steps.Delete(id)
		if id == allSteps {
			for _, other := range steps.Keys() {
				steps.Delete(other)
			}
		}
	})
}

func stateSoftKill(c *call) (any, error) {
	return nil, c.changePauses(func(steps *value.Map, id string) { stepOf(steps, id).Set("kill", true) })
}
