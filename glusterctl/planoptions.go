package glusterctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/glusterctl/cli"
)

// options plans the settings that differ, all in one command: each command of
// its own takes the lock of the pool and makes all clients load a new graph.
func (p *planner) options() {
	var allow, names []string
	for _, m := range p.d.Members {
		allow, names = append(allow, m.Address), append(names, m.Name)
	}

	want := p.d.options(p.vol.Replica, len(p.joined), allow, names)
	cmd := []string{"volume", "set", p.d.Volume}
	var pairs, why []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		have, set := p.vol.Options[k]
		if equalOption(k, have, want[k]) || !set && want[k] == "none" {
			continue
		}
		if (k == "client.ssl" || k == "server.ssl") && p.vol.State == cli.Started {
			p.refuse("storage.tls_late",
				"TLS is decided when the cluster is formed; to change it, stop the volume by hand",
				"%s is %q and cannot be set while volume %s runs", k, have, p.vol.Name)
			continue
		}

		if k == granularOption {
			if p.vol.State == cli.Started && p.healed { // its command wants both
				p.vol.Options[k] = want[k]
				p.step(Step{
					ID:      "set " + k,
					Kind:    SetOption,
					What:    "heal directories name by name",
					Why:     "it is not set",
					Command: []string{"volume", "heal", p.d.Volume, "granular-entry-heal", want[k]},
				})
			}

			continue
		}

		if set {
			why = append(why, k+" is "+have)
		}

		pairs, cmd = append(pairs, k+"="+want[k]), append(cmd, k, want[k])
		p.vol.Options[k] = want[k]
	}

	if len(pairs) == 0 {
		return
	}

	if len(why) == 0 {
		why = []string{"they are not set"}
	}

	what := fmt.Sprintf("set %d options of volume %s", len(pairs), p.d.Volume)
	if len(pairs) == 1 {
		what = "set " + pairs[0]
	}

	p.step(Step{
		ID:      "set " + strings.Join(pairs, " "),
		Kind:    SetOption,
		What:    what,
		Why:     strings.Join(why, ", "),
		Command: cmd,
	})
}

func (p *planner) start() {
	if p.vol.State != cli.Started {
		p.step(Step{
			ID:      "start " + p.d.Volume,
			Kind:    StartVolume,
			What:    "start volume " + p.d.Volume,
			Why:     "it is " + p.vol.State.String(),
			Command: []string{"volume", "start", p.d.Volume},
		})

		wasStopped := p.vol.State == cli.Stopped
		p.vol.State = cli.Started
		if wasStopped { // which bricks come up, and what they lack, is seen then
			p.plan.Incomplete = true
		}

		return
	}

	bricks, processes := p.idle()
	if len(processes) == 0 || !p.upOK {
		return
	}

	what := strings.Join(processes, ", ")
	p.step(Step{
		ID:      "start-bricks " + what,
		Kind:    StartBricks,
		What:    "start " + what,
		Why:     "the node is there, what serves its copy does not run",
		Command: []string{"volume", "start", p.d.Volume, "force"},
		Targets: processes,
	})

	for _, b := range bricks {
		delete(p.down, b)
	}
}

// idle returns the bricks of members that take part and that do not run, and all processes of
// these members that do not run, as people read them: their self-heal daemons as well. Nobody
// but the command that starts bricks starts one of those that has ended.
func (p *planner) idle() (bricks, processes []string) {
	for _, b := range p.vol.Bricks {
		m := p.owner(b)
		_, path, _ := cli.SplitBrick(b.Name)
		if p.down[b.Name] && m != nil && p.alive[m.Name] && path == m.Brick {
			bricks = append(bricks, b.Name)
		}
	}

	processes = slices.Clone(bricks)

	for _, process := range p.obs.Processes {
		if process.Name != "" || process.Online {
			continue
		}
		if m := p.member(process.HostUUID, ""); m != nil && p.alive[m.Name] {
			processes = append(processes, "the self-heal daemon of "+m.Name)
		}
	}

	return bricks, processes
}
