package tui

import (
	"context"

	"saltern/supervisor/api"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// Supervisor is the part of the supervisor's local API that the pages use. *api.Client implements
// it. Tests of single pages use a scripted implementation.
type Supervisor interface {
	Status(ctx context.Context) (status.Document, error)
	Output(ctx context.Context, service string, lines int) ([]string, error)
	Restart(ctx context.Context, service string) error
	Minions(ctx context.Context, finger bool) (status.MinionList, error)
	ChangeKeys(ctx context.Context, q api.KeyChange) error
	JoinString(ctx context.Context) (string, error)

	SetupProgress(ctx context.Context) (setup.Progress, error)
	SetupFacts(ctx context.Context) (setup.Facts, error)
	SetupValidate(ctx context.Context, a setup.Answers) (setup.Validation, error)
	SetupPreflight(ctx context.Context, a setup.Answers) ([]setup.Check, error)
	SetupStart(ctx context.Context, a setup.Answers) error
	SetupRetry(ctx context.Context) error
	SetupBack(ctx context.Context) error
	SetupNetwork(ctx context.Context, action string, n setup.Network) (setup.Trial, error)
	SetupClaim(ctx context.Context, q setup.ClaimRequest) (setup.Claim, error)
}
