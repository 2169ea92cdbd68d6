package tui

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// scripted plays the supervisor for tests of single pages.
type scripted struct {
	mu       sync.Mutex
	facts    setup.Facts
	progress setup.Progress
	claim    setup.Claim
	asked    []string // to lead
	draft    setup.Draft
	checks   []setup.Check
	doc      status.Document
	err      error // of every call
	startErr error

	confirmErr error // of keeping a network

	started  *setup.Answers
	networks []string
	trial    setup.Trial // as it goes
	retried  int
	restarts []string
	restored int
	minions  []status.Minion
	changes  []api.KeyChange
}

func newScripted() *scripted {
	return &scripted{
		facts: setup.Facts{Hostname: "sca-1", Version: "1.0.0", Managed: true, Volume: true,
			DNS: []string{"10.0.0.2", "10.0.0.3"}, Search: []string{"example.org"},
			Interfaces: []setup.Interface{
				{
					Name:      "ens3",
					MAC:       "52:54:00:12:34:56",
					Up:        true,
					Addresses: []string{"10.0.0.11/24"},
					Default:   true,
					MTU:       1500,
					DHCP:      true,
					Gateway:   "10.0.0.1",
				},
				{Name: "ens4", MAC: "52:54:00:12:34:57", Addresses: []string{}},
			},
			Disks: []setup.Disk{
				{Path: "/dev/vdb", Size: 64 << 30, Model: "QEMU", Empty: true},
				{
					Path:  "/dev/vdc",
					Size:  512 << 30,
					Model: "Evil\x1b[31mdisk\u2588",
					Why:   "an ext4 file system named backup",
				},
			}},
		progress: setup.Progress{State: status.SetupNew, Steps: []setup.Step{}},
		claim:    setup.Claim{Mine: true, Owner: "tty1"},
		checks: []setup.Check{
			{Name: "clock", What: "clock, compared with 10.0.0.12", Result: setup.Pass, Detail: "12 ms behind"},
			{Name: "port", What: "port 4521/tcp of 10.0.0.12", Result: setup.Pass, Detail: "can be reached"},
		},
	}
}

func (s *scripted) lock() func() { s.mu.Lock(); return s.mu.Unlock }

func (s *scripted) set(f func(*scripted)) {
	defer s.lock()()
	f(s)
}

func (s *scripted) Status(context.Context) (status.Document, error) {
	defer s.lock()()
	return s.doc, s.err
}

func (s *scripted) Output(_ context.Context, name string, n int) ([]string, error) {
	defer s.lock()()
	return []string{"a line of " + name,
		"an evil \x1b[2Jline \u2588 that is longer than the eighty columns of a terminal, by far and away"}, s.err
}

func (s *scripted) Restart(_ context.Context, name string) error {
	defer s.lock()()
	s.restarts = append(s.restarts, name)
	return s.err
}

func (s *scripted) Minions(_ context.Context, finger bool) (status.MinionList, error) {
	defer s.lock()()
	if !finger {
		return status.MinionList{}, errors.New("fingerprints are wanted")
	}
	return status.MinionList{Minions: slices.Clone(s.minions)}, s.err
}

func (s *scripted) ChangeKeys(_ context.Context, q api.KeyChange) error {
	defer s.lock()()
	s.changes = append(s.changes, q)
	s.minions = slices.DeleteFunc(s.minions, func(m status.Minion) bool { return slices.Contains(q.IDs, m.ID) })
	return s.err
}

func (s *scripted) JoinString(context.Context) (string, error) {
	defer s.lock()()
	return join, s.err
}

func (s *scripted) SetupProgress(context.Context) (setup.Progress, error) {
	defer s.lock()()
	return s.progress, s.err
}

func (s *scripted) SetupFacts(context.Context) (setup.Facts, error) {
	defer s.lock()()
	return s.facts, s.err
}

// SetupValidate is the real one.
func (s *scripted) SetupValidate(_ context.Context, a setup.Answers) (setup.Validation, error) {
	defer s.lock()()
	if s.err != nil {
		return setup.Validation{}, s.err
	}
	return setup.ValidateHere(a, s.facts, setup.Base{DataDir: "/var/lib/saltern", RuntimeDir: "/run/saltern"}), nil
}

func (s *scripted) SetupPreflight(context.Context, setup.Answers) ([]setup.Check, error) {
	defer s.lock()()
	return s.checks, s.err
}

func (s *scripted) SetupStart(_ context.Context, a setup.Answers) error {
	defer s.lock()()
	if s.startErr != nil {
		return s.startErr
	}
	if s.started != nil {
		return errors.New("started twice")
	}

	s.started = &a
	s.progress = setup.Progress{State: status.SetupForming, Steps: []setup.Step{
		{Name: "make the cluster's key", State: "done", Message: "in 40 ms"},
		{Name: "make the shared volume", State: "doing", Message: "waits for glusterd"},
		{Name: "start salt-master", State: "todo"},
	}}

	return nil
}

func (s *scripted) SetupRetry(context.Context) error {
	defer s.lock()()
	s.retried++
	return s.err
}

func (s *scripted) SetupBack(context.Context) error {
	defer s.lock()()
	s.restored++
	s.progress = setup.Progress{State: status.SetupNew}
	return s.err
}

func (s *scripted) SetupNetwork(_ context.Context, action string, n setup.Network) (setup.Trial, error) {
	defer s.lock()()
	if action == "look" {
		return s.trial, s.err
	}

	s.networks = append(s.networks, action)
	if action == "confirm" && s.confirmErr != nil {
		return setup.Trial{}, s.confirmErr
	}

	s.trial = setup.Trial{Active: action == "try", Addresses: []string{"10.0.0.21/24"}, Reach: []setup.Reach{
		{
			What:    "gateway",
			Address: "10.0.0.1",
			Answers: true,
		}, {What: "name server", Address: "10.0.0.2", Answers: true}, {What: "name server", Address: "10.0.0.3"},
		{What: "time server", Address: "ntp.example.org", Detail: "no such name"},
	}}

	return setup.Trial{
		Active:    action == "try",
		Until:     time.Now().Add(setup.TrialLasts),
		Addresses: []string{"10.0.0.21/24"},
	}, s.err
}

func (s *scripted) SetupClaim(_ context.Context, q setup.ClaimRequest) (setup.Claim, error) {
	defer s.lock()()
	answer := s.claim
	if q.Lead == setup.Take || q.Lead == setup.Begin && s.claim.Owner == "" {
		s.asked = append(s.asked, string(q.Lead))
		s.claim = setup.Claim{Mine: true, Owner: q.Name, Since: time.Now()}
		answer = s.claim
		answer.Draft = s.draft
	}
	if q.Draft != nil {
		s.draft = q.Draft
	}
	return answer, s.err
}
