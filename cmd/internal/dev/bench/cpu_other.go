//go:build !unix

package bench

import "errors"

func ownCPU() float64 { return 0 }

func processCPU(int) (float64, error) { return 0, errors.ErrUnsupported }
