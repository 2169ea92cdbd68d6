package main

import (
	"context"
	"fmt"

	"saltern/master/msgpack"
	"saltern/test/load/spread"
	"saltern/test/minion"
)

// auth measures sign-ins. What a minion does with the answer, operations with
// its private key, follows when the clock has stopped.
func (s *swarm) auth(ctx context.Context) {
	if s.opts.token { // the master's key must be known before
		probe, err := s.player(s.opts.prefix+"probe", s.pairs[0])
		if err == nil {
			err = probe.signIn(ctx)
			probe.close()
		}

		if err != nil {
			s.errs.add(err)
			return
		}

		s.trust(probe, nil)
	}

	s.watch(func() {
		for round := range s.opts.rounds {
			if s.opts.freshIDs {
				round++
			} else {
				round = 0
			}

			players, err := s.muster(round)
			if err != nil {
				s.errs.add(err)
				return
			}

			s.authRound(ctx, players)
		}
	})
}

func (s *swarm) authRound(ctx context.Context, players []*player) {
	answers := make([][]byte, len(players))
	challenges := make([]minion.Challenge, len(players))
	s.figures.add(s.crowd(ctx, len(players), s.opts.atOnce, func(i int) error {
		p := players[i]
		payload, challenge, err := p.minion.PackSignIn()
		if err == nil {
			challenges[i] = challenge
			answers[i], err = p.minion.Exchange(ctx, payload)
		}
		return err
	}))

	check := func(i int) error {
		if answers[i] == nil {
			return nil // counted already
		}

		answer, err := msgpack.Decode(answers[i], msgpack.DefaultLimits)
		if err != nil {
			return fmt.Errorf("sign-in: %w", err)
		}

		return players[i].minion.SignedIn(answer, challenges[i])
	}

	first := 0
	if s.masterKey == nil { // whose key all others must be signed with
		s.errs.add(check(0))
		s.trust(players[0], players)
		first = 1
	}

	s.crowd(context.WithoutCancel(ctx), len(players)-first, 4, func(i int) error { return check(first + i) })
	for _, p := range players {
		p.close()
	}
}

// signInAll signs in all players of whom -state has no keys.
func (s *swarm) signInAll(ctx context.Context) {
	players, err := s.muster(0)
	var strangers []*player
	for _, p := range players {
		if err == nil {
			err = s.recall(p)
		}
		if !p.signedIn() {
			strangers = append(strangers, p)
		}
	}

	if err != nil {
		s.errs.add(err)
		return
	}

	s.players = players
	s.report.Setup["sign_ins"] = len(strangers)
	if len(strangers) > 0 && s.masterKey == nil {
		if err := strangers[0].signIn(ctx); err != nil {
			s.errs.add(err)
			return
		}
		s.trust(strangers[0], players)
		strangers = strangers[1:]
	}

	if len(strangers) == 0 {
		return
	}

	t := s.crowd(ctx, len(strangers), s.opts.atOnce, func(i int) error { return strangers[i].signIn(ctx) })
	s.report.Setup["sign_in_s"], s.report.Setup["sign_in_ms"] = t.wall.Seconds(), spread.Of(t.latency)
}
