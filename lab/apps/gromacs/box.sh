#!/bin/sh
# Makes a box of water (SPC/E) with GROMACS' own tools, as the input of mdrun: water.tpr.
#
# Words: EDGE (nm). The box is relaxed first: where it is tiled of GROMACS' box of 216 molecules,
# some are too near.
set -eu
edge=$1

cat > water.top <<END
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
Water
[ molecules ]
END
common='
nstlist = 20
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
DispCorr = EnerPres'
cat > relax.mdp <<END
integrator = steep
nsteps = 100
$common
END
cat > water.mdp <<END
integrator = md
dt = 0.002
nsteps = 2500
nstcalcenergy = 50
nstenergy = 50
nstlog = 1000
tcoupl = v-rescale
tc-grps = System
tau-t = 0.2
ref-t = 300
ld-seed = 1
gen-vel = yes
gen-temp = 300
gen-seed = 1
$common
END
# Positions from here on are those of a box that has taken its temperature.
sed -e 's/^gen-vel.*/gen-vel = no/' -e 's/^nsteps.*/nsteps = -1/' \
    -e 's/^ld-seed.*/ld-seed = 2\ncontinuation = yes/' water.mdp > run.mdp

gmx() { command gmx -quiet -nobackup "$@" > gmx.log 2>&1 || { tail -20 gmx.log >&2; exit 1; }; }
gmx solvate -cs spc216.gro -box "$edge" "$edge" "$edge" -p water.top -o water.gro
gmx grompp -f relax.mdp -c water.gro -p water.top -o relax.tpr -po relax.out.mdp
gmx mdrun -ntmpi 1 -ntomp 1 -deffnm relax
gmx grompp -f water.mdp -c relax.gro -p water.top -o warm.tpr -po warm.out.mdp
gmx mdrun -ntmpi 1 -ntomp 1 -deffnm warm
gmx grompp -f run.mdp -c warm.gro -t warm.cpt -p water.top -o water.tpr -po run.out.mdp
