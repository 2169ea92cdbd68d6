// Package repos manages the git repositories of a master. It reads the options of gitfs and
// git_pillar, opens one store for both, fetches, reports faults, and answers the runners for git.
package repos
