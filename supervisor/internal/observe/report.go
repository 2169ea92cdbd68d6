package observe

import (
	"cmp"
	"fmt"

	"saltern/internal/control"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
)

// masterReports returns the problems that the master reports, or a finding that it has stopped
// reporting.
func masterReports(f facts) (found []status.Finding) {
	s := f.master
	var running service.Info
	for _, i := range f.services {
		if i.Name == status.MasterService {
			running = i
		}
	}

	if s == nil || running.PID == 0 || s.PID != running.PID {
		return nil // there is no report, or the report is from an earlier process
	}
	if !s.Fresh(f.now, running.PID) {
		if running.State != service.Running { // another finding already says that the master does not run
			return nil
		}
		return []status.Finding{{
			Code:  status.MasterUnreported,
			Cause: fmt.Sprintf("the last status is %s old", status.Age(f.now.Sub(s.Written))),
		}}
	}

	for _, p := range s.Problems {
		code, ok := status.GitCode(p.What)
		switch {
		case p.What == control.JobCacheFault:
			found = append(found, status.Finding{Code: status.ReturnsNotKept, Cause: p.Text})
		case p.What == control.PillarFault:
			found = append(found, status.Finding{Code: status.PillarsUnanswered, Cause: unansweredCause(p)})
		case p.What == control.PillarCheckFault:
			found = append(found, status.Finding{Code: status.PillarCheck, Cause: p.Text})
		case p.What == control.PostgresFault:
			found = append(found, status.Finding{Code: status.PostgresAway, Cause: p.Text})
		case p.What == control.PostgresLoss:
			found = append(found, status.Finding{Code: status.PostgresLacks, Cause: p.Text})
		case p.What == control.SavedFault:
			found = append(found, status.Finding{Code: status.SavedUnreadable, Cause: p.Text})
		case p.What == control.ReactionFault:
			found = append(found, status.Finding{Code: status.ReactionsLost, Cause: p.Text})
		case p.What == control.AuditFault && f.Audit == "":
			found = append(found, status.Finding{Code: status.AuditLost, Cause: "salt-master: " + p.Text})
		case p.What == control.AuditFault: // another finding reports this problem
		case ok:
			found = append(found, status.Finding{Code: code, Cause: p.Text})
		default:
			found = append(found, status.Finding{Code: status.MasterProblem, Subject: string(p.What), Cause: p.Text})
		}
	}

	found = append(found, apartFindings(s.Apart, f.Others)...)
	if e := s.PillarError; e != nil {
		found = append(found, status.Finding{Code: status.PillarErrors, Cause: pillarCause(e, s.PillarFaulty)})
	}

	return found
}

// apartFindings returns findings about masters that serve but have no connection to this node's
// master.
func apartFindings(list []control.Apart, others []status.Node) (found []status.Finding) {
	name := func(address string) string {
		for _, o := range others {
			if o.Address == address && o.State == "ready" && o.Master == "ok" {
				return o.Name
			}
		}
		return ""
	}

	for _, a := range list {
		node := name(a.Peer)
		if node == "" { // the problem of that node says why
			continue
		}

		effect := "jobs of one do not reach the minions of the other"
		if a.Through != "" {
			effect = "what they have for each other goes through " + cmp.Or(name(a.Through), a.Through)
		}

		found = append(found,
			status.Finding{
				Code:    status.MastersApart,
				Subject: node,
				Cause:   cmp.Or(a.Error, "no connection") + "; " + effect,
			})
	}

	return found
}

// unansweredCause returns a sentence about the requests for pillars that the master could not
// answer.
func unansweredCause(p control.Problem) string {
	return fmt.Sprintf("%s (%d questions since %s, the last at %s)", p.Text, p.Count,
		p.Since.UTC().Format("15:04 UTC"), p.Last.UTC().Format("15:04 UTC"))
}

func pillarCause(e *control.PillarError, minions int) string {
	maker := "minion " + e.Minion
	switch {
	case minions == 2:
		maker += " (and 1 other)"
	case minions > 2:
		maker += fmt.Sprintf(" (and %d others)", minions-1)
	}
	return fmt.Sprintf("%s: %s (at %s)", maker, e.Text, e.At.UTC().Format("15:04 UTC"))
}
