package glusterctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/glusterctl/cli"
)

// options plans one command for all settings that differ, because each command takes the lock of
// the pool, and makes all clients load a new graph.
func (p *planner) options() {
	var allow, names []string
	for _, m := range p.desired.Members {
		allow, names = append(allow, m.Address), append(names, m.Name)
	}

	want := p.desired.options(p.volume.Replica, len(p.joined), allow, names)
	cmd := []string{"volume", "set", p.desired.Volume}
	var pairs, why []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		have, set := p.volume.Options[k]
		if equalOption(k, have, want[k]) || !set && want[k] == "none" {
			continue
		}
		if (k == "client.ssl" || k == "server.ssl") && p.volume.State == cli.Started {
			p.refuse("storage.tls_late",
				"TLS is decided when the cluster is formed; to change it, stop the volume by hand",
				"%s is %q and cannot be set while volume %s runs", k, have, p.volume.Name)
			continue
		}

		if k == granularOption {
			if p.volume.State == cli.Started && p.healed { // the command needs a started volume and nothing to heal
				p.volume.Options[k] = want[k]
				p.addStep(Step{
					ID:      "set " + k,
					Kind:    SetOption,
					What:    "heal directories name by name",
					Why:     "it is not set",
					Command: []string{"volume", "heal", p.desired.Volume, "granular-entry-heal", want[k]},
				})
			}

			continue
		}

		if set {
			why = append(why, k+" is "+have)
		}

		pairs, cmd = append(pairs, k+"="+want[k]), append(cmd, k, want[k])
		p.volume.Options[k] = want[k]
	}

	if len(pairs) == 0 {
		return
	}

	if len(why) == 0 {
		why = []string{"they are not set"}
	}

	what := fmt.Sprintf("set %d options of volume %s", len(pairs), p.desired.Volume)
	if len(pairs) == 1 {
		what = "set " + pairs[0]
	}

	p.addStep(Step{
		ID:      "set " + strings.Join(pairs, " "),
		Kind:    SetOption,
		What:    what,
		Why:     strings.Join(why, ", "),
		Command: cmd,
	})
}

func (p *planner) planStart() {
	if p.volume.State != cli.Started {
		p.addStep(Step{
			ID:      "start " + p.desired.Volume,
			Kind:    StartVolume,
			What:    "start volume " + p.desired.Volume,
			Why:     "it is " + p.volume.State.String(),
			Command: []string{"volume", "start", p.desired.Volume},
		})

		wasStopped := p.volume.State == cli.Stopped
		p.volume.State = cli.Started
		if wasStopped { // after the start, observe which bricks run and what they lack
			p.plan.Incomplete = true
		}

		return
	}

	bricks, processes := p.idleProcesses()
	if len(processes) == 0 || !p.bricksKnown {
		return
	}

	what := strings.Join(processes, ", ")
	p.addStep(Step{
		ID:      "start-bricks " + what,
		Kind:    StartBricks,
		What:    "start " + what,
		Why:     "the node is there, what serves its copy does not run",
		Command: []string{"volume", "start", p.desired.Volume, "force"},
		Targets: processes,
	})

	for _, b := range bricks {
		delete(p.down, b)
	}
}

// idleProcesses returns two lists about present members. bricks lists the bricks that do not run.
// processes describes all processes that do not run, including self-heal daemons. GlusterFS does
// not restart a process that has ended; the command that starts bricks does.
func (p *planner) idleProcesses() (bricks, processes []string) {
	for _, b := range p.volume.Bricks {
		m := p.ownerOf(b)
		_, path, _ := cli.SplitBrick(b.Name)
		if p.down[b.Name] && m != nil && p.present[m.Name] && path == m.Brick {
			bricks = append(bricks, b.Name)
		}
	}

	processes = slices.Clone(bricks)

	for _, process := range p.observed.Processes {
		if process.Name != "" || process.Online {
			continue
		}
		if m := p.member(process.HostUUID, ""); m != nil && p.present[m.Name] {
			processes = append(processes, "the self-heal daemon of "+m.Name)
		}
	}

	return bricks, processes
}
