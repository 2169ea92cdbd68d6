// Package repos manages the git repositories of a master. It reads the options of gitfs and
// git_pillar, opens one store for both, fetches the repositories and reports their faults. It also
// implements the runners for git.
package repos
