package master

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"saltern/master/conf"
	"saltern/master/gitpillar"
)

// gitPillarRetry is the longest pause after a fetch that failed: a problem that
// nothing meets again is forgotten after problemFor.
const gitPillarRetry = problemFor / 2

// fetchGitPillars fetches the repositories of git pillars at the start and
// every git_pillar_update_interval, until ctx ends. A pillar request never waits
// for it: it is given the last commit that was fetched.
func (m *Master) fetchGitPillars(ctx context.Context) {
	if !gitpillar.Configured(m.cfg.ExtPillar) {
		return
	}
	f := gitpillar.New(gitpillar.Config{Pythons: m.pythons(), ConfigFile: m.cfg.Path, Log: m.log})
	every := gitpillar.Interval(m.cfg.GitPillarUpdateInterval, m.cfg.LoopInterval)
	for {
		start := m.now()
		err := f.Fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := every
		if err != nil {
			m.problems.set(gitPillarProblem, errors.New(gitPillarText(err)))
			pause = min(every, gitPillarRetry)
		} else {
			m.problems.clear(gitPillarProblem)
		}
		select {
		case <-time.After(max(time.Second, pause-m.now().Sub(start))):
		case <-ctx.Done():
			return
		}
	}
}

// gitPillarProblem is the name under which the supervisor knows the problem.
const gitPillarProblem = "git pillars"

// gitPillarText is the first fault on one line, without passwords.
func gitPillarText(err error) string {
	all := []error{err}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		all = j.Unwrap()
	}
	text, _ := conf.Shown(strings.Join(strings.Fields(all[0].Error()), " ")).(string)
	if n := len(all) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}
