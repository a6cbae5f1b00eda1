/* An exported model on a Cortex-M4 without an operating system, printed through the debugger (semihosting).

   model.h: `knnpress export model.knnp -o model.h`; points.h: N_POINTS and points[N_POINTS][KNNPRESS_POINT_SIZE].

   arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -std=c99 -O2 main.c \
     -nostartfiles -specs=rdimon.specs -T link.ld -lm -o model.elf
   qemu-system-arm -M mps2-an386 -nographic -semihosting-config enable=on,target=native -kernel model.elf */
#include <stdio.h>
#define KNNPRESS_IMPLEMENTATION
#include "model.h"
#include "points.h"

extern char stack_top;
extern void initialise_monitor_handles(void);
void _exit(int status);
void start(void);

__attribute__((section(".vectors"), used)) static void *const vectors[] = {&stack_top, (void *)start};

void start(void) {
  static double p[KNNPRESS_N_CLASSES];
  int i, c;
  *(volatile unsigned *)0xE000ED88 |= 0xF << 20; /* switch the floating-point unit on */
  initialise_monitor_handles();
  for (i = 0; i < N_POINTS; i++) {
    const int winner = knnpress_predict(points[i], p);
    printf("%d", winner);
    for (c = 0; c < KNNPRESS_N_CLASSES; c++) printf(" %.9g", winner < 0 ? 0.0 : p[c]);
    printf("\n");
  }
  fflush(stdout);
  _exit(0);
}
