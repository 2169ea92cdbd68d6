package observe

import (
	"errors"
	"time"

	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// SetupFinding returns the finding that the set-up has stopped.
func SetupFinding(p setup.Progress) status.Finding {
	f := status.Finding{
		Code:  status.SetupStopped,
		Cause: status.Clip("tried to " + p.Failure.Tried + ": " + p.Failure.Cause),
	}
	for _, c := range p.Failure.Check {
		f.Cause += "\ncheck: " + status.Clip(c)
	}
	return f
}

// underWay returns a phrase about the step of the set-up that is under way.
func underWay(p setup.Progress) string {
	for _, s := range p.Steps {
		if s.State == "doing" {
			return status.Clip("the set-up is under way: " + s.Name + "; " + s.Message)
		}
	}
	return "the set-up is under way"
}

// SetupStep returns the step that a set-up is making, or nil.
func SetupStep(p setup.Progress) *status.SetupStep {
	for i, s := range p.Steps {
		if s.State == "doing" && p.State != status.SetupNew {
			return &status.SetupStep{Number: i + 1, Of: len(p.Steps), Name: s.Name, Message: status.Clip(s.Message)}
		}
	}
	return nil
}

// setupState returns the state of the set-up as the status shows it.
func setupState(s status.Setup, serving, served bool) status.Setup {
	switch {
	case s != "" && s != status.SetupReady:
		return s
	case serving:
		return status.SetupReady
	case s == status.SetupReady && served:
		return status.SetupDegraded
	}
	return status.SetupWaiting
}

// Idle describes a machine without a usable configuration.
type Idle struct {
	Version  string
	Hostname string
	Started  time.Time
	Config   string // path of appliance.yaml
	Fault    error  // why appliance.yaml cannot be used
	Reset    bool   // Fault says why a reset has stopped
	Setup    setup.Progress
}

// Document returns the status of the machine at the time now.
func (i Idle) Document(board *status.Board, now time.Time) status.Document {
	f := status.Finding{Code: status.ConfigWrong, Subject: i.Config, Cause: i.Fault.Error()}
	d := status.Document{
		Schema:   status.Schema,
		Setup:    status.SetupFailed,
		Version:  i.Version,
		Node:     i.Hostname,
		Started:  i.Started,
		Nodes:    []status.Node{},
		Services: []status.Service{},
	}

	if i.Reset {
		f = status.Finding{Code: status.ResetStopped, Cause: status.Clip(i.Fault.Error())}
	}

	if errors.Is(i.Fault, settings.ErrNone) {
		f = status.Finding{Code: status.NotConfigured, Subject: i.Config}
		d.Setup = status.SetupNew
		switch p := i.Setup; {
		case p.Failure != nil:
			d.Setup = p.State
			f = SetupFinding(p)
		case p.State != status.SetupNew:
			d.Setup = p.State
			d.SetupStep = SetupStep(p)
			f.Cause = underWay(p)
		}
	}

	d.Front.Addresses = []string{}
	d.Problems = board.Update(now, []status.Finding{f})
	d.Health = status.Worst(d.Problems)
	d.Exit = d.Health.Exit()

	return d
}
